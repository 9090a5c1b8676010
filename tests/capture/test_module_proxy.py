"""Faces of modules: objects that are the module in everything but how they are called."""

from __future__ import annotations

import copy
import gc
import weakref

from torch import nn

import fusewright


def test_faces_of_modules_of_one_class_share_a_class() -> None:
    proxy = fusewright.compile(nn.Linear(2, 2))
    copied = copy.deepcopy(proxy)
    assert type(copied) is type(proxy) is not nn.Linear
    assert isinstance(copied, nn.Linear)
    assert type(fusewright.compile(nn.Tanh())) is not type(proxy)


def test_the_class_of_faces_keeps_nothing_alive() -> None:
    def classes() -> list[weakref.ref[type]]:
        class Own(nn.Linear):
            pass

        proxy = fusewright.compile(Own(2, 2))
        return [weakref.ref(Own), weakref.ref(type(proxy))]

    dead = classes()
    gc.collect()  # the class of proxies, which is a cycle, as classes are
    gc.collect()  # the class of modules, which the first one was made of
    assert [one() for one in dead] == [None, None]
