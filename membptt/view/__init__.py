"""What people look at: schedules as text, as drawings, and as pages that play them."""

from membptt.view.svg import draw
from membptt.view.viewer import compare, page, save_page

__all__ = ["compare", "draw", "page", "save_page"]
