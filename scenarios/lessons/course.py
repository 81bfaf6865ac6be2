"""All lessons of the course, by number."""

from __future__ import annotations

from scenarios.lessons import cable, incast, planes, ports, verbs, wire
from scenarios.lessons.question import Lesson

LESSONS: dict[int, Lesson] = {
    module.LESSON.number: module.LESSON for module in (planes, cable, incast, ports, wire, verbs)
}
