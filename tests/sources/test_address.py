"""Passwords are masked, and nothing else is."""

from __future__ import annotations

import pytest

from climb.errors import InputError
from climb.export import images_of
from climb.sources import open_source
from climb.sources.open import without_password


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("rtsp://admin:s3cret@10.0.0.7:554/main", "rtsp://admin:...@10.0.0.7:554/main"),
        ("rtsp://:s3cret@10.0.0.7/x", "rtsp://:...@10.0.0.7/x"),
        ("rtsp://admin:s3cret@10.0.0.7/a@b", "rtsp://admin:...@10.0.0.7/a@b"),
        ("rtsp://admin:s3@cret@10.0.0.7/a", "rtsp://admin:...@10.0.0.7/a"),
        ("rtsp://admin:s3/cret@10.0.0.7/a", "rtsp://admin:...@10.0.0.7/a"),
        ("rtsp://admin:s3 cret@10.0.0.7/a", "rtsp://admin:...@10.0.0.7/a"),
        ("http://cam/video.mjpg?user=admin&pwd=s3cret", "http://cam/video.mjpg?user=admin&pwd=..."),
        ("http://cam/v?loginuse=a&loginpas=s3cret&rate=1", "http://cam/v?loginuse=a&loginpas=...&rate=1"),
        ("https://cam/v?access_token=s3cret#t", "https://cam/v?access_token=...#t"),
        ("http://cam/v?PASSWORD=s3cret;x=1", "http://cam/v?PASSWORD=...;x=1"),
        ("http://cam/v?usr=a&pw=s3cret", "http://cam/v?usr=a&pw=..."),
        ("rtsp://10.0.0.7/user=a&password=s3cret&channel=1", "rtsp://10.0.0.7/user=a&password=...&channel=1"),
        ("rtsp://10.0.0.7/user=a_password=s3cret_channel=1.sdp", "rtsp://10.0.0.7/user=a_password=..."),
        ("http://a:s3cret@cam/v?pass=s3cret", "http://a:...@cam/v?pass=..."),
        ("--camera=rtsp://a:s3cret@h/", "--camera=rtsp://a:...@h/"),
    ],
)
def test_passwords_are_masked(typed: str, shown: str) -> None:
    assert without_password(typed) == shown
    assert "s3cret" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "rtsp://host/s?x=a:b@c",
        "rtsp://host:554/user@1",
        "http://[::1]:8000/v?width=640&fps=5",
        "http://[::1]:8000/a@b",
        "photos/password=1",
        "hf:owner/name@split",
        "/dev/video0",
    ],
)
def test_text_without_a_password_is_unchanged(text: str) -> None:
    assert without_password(text) == text


def test_errors_mask_passwords() -> None:
    for refused in (
        lambda: open_source("rtsp://admin:s3cret@camera/main", image_size=8, watch=True),
        lambda: open_source("ftp://admin:s3cret@camera/main", image_size=8),
        lambda: open_source("ftp://admin:s3cret@camera/main.tar", image_size=8),
        lambda: images_of("rtsp://admin:s3cret@camera/main", 8),
    ):
        with pytest.raises(InputError, match=r"://admin:\.\.\.@camera/main"):
            refused()
