"""`python -m bench.build`: what it changes in the sources, and what it says where it cannot build."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import build
from bench.build import BuildError, built, without_validation

SOURCE = """    before();
    VkBool32 enable_best_practice = layer_settings;
    std::vector<vk::LayerSettingEXT> settings = { { "a", 1, &enable_best_practice }, };
    vk::LayerSettingsCreateInfoEXT layer_setting_info(settings);
    vk::InstanceCreateInfo info(vk::InstanceCreateFlags{}, &app_info, layers, extensions, &layer_setting_info);
"""
CHANGED = """    before();
    vk::InstanceCreateInfo info(vk::InstanceCreateFlags{}, &app_info, layers, extensions);
"""


def test_validation_is_taken_out_once(tmp_path: Path) -> None:
    source = tmp_path / "ggml-vulkan.cpp"
    source.write_text(SOURCE)
    without_validation(source)
    assert source.read_text() == CHANGED
    before = source.stat().st_mtime_ns
    without_validation(source)
    assert (source.read_text(), source.stat().st_mtime_ns) == (CHANGED, before)


def test_who_has_no_cmake_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "sources", lambda folder: folder)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"cmake cannot be run .* Install cmake"):
        built("rpc", tmp_path / "new", 1)
