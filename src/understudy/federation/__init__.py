"""The federation: the recipe contract, cohorts, both halves of a round, and the engine."""

from understudy.federation.engine import Engine, Runtime
from understudy.federation.memory import SiteMemory
from understudy.federation.recipe import Recipe, RecipeInfo, State, Task, Update, make_plan
from understudy.federation.site import Sites
from understudy.federation.slots import Private

__all__ = [
    "Engine",
    "Private",
    "Recipe",
    "RecipeInfo",
    "Runtime",
    "SiteMemory",
    "Sites",
    "State",
    "Task",
    "Update",
    "make_plan",
]
