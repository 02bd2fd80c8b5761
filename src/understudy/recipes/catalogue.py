"""What each recipe is and may be told: the list that is read before any net is loaded."""

from __future__ import annotations

from itertools import product

from understudy.federation.info import RecipeInfo
from understudy.privacy.terms import Trust, Unit
from understudy.recipes import options, vae_options

__all__ = ["CATALOGUE"]

_NOISED: tuple[Trust, ...] = ("central", "distributed", "local")


def _by(*units: Unit) -> frozenset[tuple[Unit, Trust]]:
    """These units, under every trust that adds noise."""
    return frozenset(product(units, _NOISED))


_RECIPES = (
    RecipeInfo(
        name="fedvae",
        title="Federated variational autoencoders, joint or separate, central or local",
        paper="Margaritis 2021, Federated learning with differential privacy, §4.4",
        summary="Many rounds; decoders are averaged under noise, encoders stay at the sites.",
        kinds=("table", "image", "series"),
        supports=_by("site"),
        default=("site", "central"),
        options=vae_options.FedVAEOptions,
        rounds=400,
        corrections="With cohort.rate, cohorts are coin flips (fixed-size draws earn no "
        "amplification); under local trust noise composes at doubled sensitivity without it.",
    ),
    RecipeInfo(
        name="dpd_fvae",
        title="Federated VAE with a differentially private decoder, by site or by record",
        paper="Pfitzner & Arnrich 2022, DPD-fVAE (arXiv 2211.11591)",
        summary="Many rounds; sites send clipped decoder updates, or noised gradients of records.",
        kinds=("table", "image", "series"),
        supports=_by("record", "site"),
        default=("site", "central"),
        options=vae_options.DpdFVAEOptions,
        rounds=200,
        corrections="The published L-DPD-fVAE protects no record: its encoder sees all rows "
        'without noise. encoder = "private" or "frozen" does; "paper" carries no record-level ε.',
    ),
    RecipeInfo(
        name="sgde",
        title="A β-VAE per class that one site trains alone, to be exchanged for others'",
        paper="Lomurno et al. 2021, SGDE: Secure Generative Data Exchange (arXiv 2109.12062)",
        summary="One site, one round of noised steps; decoders are released, classes drawn alike.",
        kinds=("table", "image", "series"),
        supports=frozenset({("person", "local"), ("record", "local")}),
        default=("record", "local"),
        options=vae_options.SGDEOptions,
        rounds=1,
        corrections="Classes share one ε only with public classes, one public rate and number of "
        "steps, and noise for every class, with rows or without: so it is here.",
    ),
    RecipeInfo(
        name="fedgp",
        title="Federated GAN; generators are averaged, critics stay at the sites",
        paper="Triastcyn & Faltings 2020, Federated Generative Privacy (arXiv 1910.08385)",
        summary="Many rounds; not private unless a trust and ε are given: they then protect sites.",
        kinds=("table", "image"),
        supports=_by("site"),
        default=("site", "none"),
        options=options.FedGPOptions,
        rounds=300,
        corrections="The published average-case figure is an estimate, not a guarantee: it stands "
        "on no claim. Sites count alike: weights by their number of rows would tell it. Secure "
        'sums are trust = "distributed"; without a trust the server sees each generator.',
    ),
    RecipeInfo(
        name="dp_fedavg_gan",
        title="Federated critics under noise; the server trains the generator against them",
        paper="Augenstein et al. 2020 (ICLR), as in Margaritis 2021, Algorithm 3",
        summary="Many rounds; sites move a critic they share; the server trains a generator by it.",
        kinds=("table", "image"),
        supports=_by("site"),
        default=("site", "central"),
        options=options.DpFedAvgGANOptions,
        rounds=400,
        corrections="With cohort.rate, cohorts are coin flips (fixed-size draws earn no "
        "amplification).",
    ),
    RecipeInfo(
        name="vertigan",
        title="A GAN for parties that hold columns; each trains a critic of its own by DP-SGD",
        paper="Jiang 2023 (thesis), ch. 6, VertiGAN",
        summary="Many rounds; critics stay with the parties. Weak on relations across parties.",
        kinds=("table",),
        supports=frozenset(),
        parties=frozenset({("record", "local")}),
        default=("record", "local"),
        options=options.VertiGANOptions,
        rounds=1500,
        corrections="The server picks no batch: parties draw it from a secret of theirs. One "
        "person is at every party, so the claim adds parties up; insiders get no amplification.",
    ),
    RecipeInfo(
        name="signds",
        title="Federated classifiers; sites send a sign and a few coordinates",
        paper="Jiang 2023 (thesis), ch. 3, SignDS-FL",
        summary="Learns a classifier under local privacy; its release answers `predict`.",
        kinds=("table", "image", "series"),
        supports=frozenset({("site", "local")}),
        default=("site", "local"),
        options=options.SignDSOptions,
        rounds=500,
        corrections="The published ε is per update; the claim adds up all updates of a site.",
        cohort=20,  # with fewer, steps are rough: one vote moves a weight by γ/cohort
    ),
    RecipeInfo(
        name="dp_fed_wae",
        title="Wasserstein autoencoder; sites send a sign and a few coordinates",
        paper="Jiang 2023 (thesis), ch. 4, DP-Fed-WAE",
        summary="Many small sites, nobody trusted; each site answers once or a few times.",
        kinds=("table", "image"),
        supports=frozenset({("site", "local")}),
        default=("site", "local"),
        options=options.DpFedWAEOptions,
        rounds=500,
        corrections="A site's ε adds up over its updates; the unit is the site, not the person.",
    ),
    RecipeInfo(
        name="fedstdg",
        title="Recurrent Wasserstein autoencoder for series; sites send a few coordinates",
        paper="Jiang 2023 (thesis), ch. 5, FedSTDG",
        summary="Multivariate time series of many sites, nobody trusted.",
        kinds=("series",),
        supports=frozenset({("site", "local")}),
        default=("site", "local"),
        options=options.FedSTDGOptions,
        rounds=100,
        corrections="The published ε is per update; the claim adds up all updates of a site. No "
        "bit by default: it costs a tenth of ε, and the published rule hardly fires at small ε.",
    ),
    RecipeInfo(
        name="fedmoments",
        title="A noisy sum of class moments; on tables one of histograms before it",
        paper="our own, after DP-MERF and the moment methods",
        summary="One round, or two for tables; a site sends a bounded sum; best at small budgets.",
        kinds=("table", "image", "series"),
        supports=_by("person", "record", "site"),
        default=("record", "central"),
        parties=frozenset({("record", "local")}),
        options=options.FedMomentsOptions,
        rounds=1,
    ),
    RecipeInfo(
        name="fedmarginals",
        title="Noisy tables of pairs of columns, imposed on rows",
        paper="our own, of the family of MST, AIM and RAP (McKenna et al. 2021, 2022; Aydore 2021)",
        summary="fedmoments' sums, then one of the tables that matter; keeps relations of columns.",
        kinds=("table",),
        supports=_by("person", "record", "site"),
        default=("record", "central"),
        parties=frozenset({("record", "local")}),
        options=options.FedMarginalsOptions,
        rounds=1,
    ),
    RecipeInfo(
        name="privbayes",
        title="A Bayesian network by noisy sums of tables: a baseline",
        paper="Zhang et al. 2014, PrivBayes, federated as in Margaritis 2021, §4.5.4",
        summary="Two or three rounds; a column depends on one or two others, given or chosen.",
        kinds=("table",),
        supports=_by("person", "record", "site"),
        default=("record", "central"),
        options=options.PrivBayesOptions,
        rounds=1,
        corrections="Parents are chosen from a noisy sum of tables of all pairs: mutual "
        "information, which the paper's exponential mechanism needs, is no sum over sites.",
    ),
)
CATALOGUE = {info.name: info for info in _RECIPES}
