"""A process in place of a training, which computes without end at the lowest priority."""

from __future__ import annotations

from runtime.training.adapting import end_with_parent, give_way

if __name__ == "__main__":
    give_way()
    end_with_parent()
    while True:
        pass
