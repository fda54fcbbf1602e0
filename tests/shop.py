"""A project with a channel and a view of it, and its API without a worker; the fixtures of `tests/api` and others."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

import kilonova as kn
from kilonova.api.application import create_api
from kilonova.api.routes.context import route_context
from kilonova.service.project import Project, open_project
from kilonova.service.spark_operations import SparkOperations
from tests.fakes import Prompt

OFTEN = "1000000 per minute"


def api(server: SparkOperations, project: Project) -> FastAPI:
    """The API of a project, without the page."""
    return create_api(route_context(server, project))


@contextmanager
def opened_shop(place: Path, **settings: Any) -> Iterator[Project]:
    """The project in a directory, made if it is not there yet."""
    workflow = kn.Workflow("shop")
    workflow.channel("clicks", "user string", watch=kn.watched_directory("inbox", settle_time="0 seconds"))
    workflow.view("per_user", "SELECT user, count(*) AS n FROM clicks GROUP BY user")
    served = {
        "max_upload_mb": 1,
        "rate_limit": OFTEN,
        "read_rate_limit": OFTEN,
        "failed_auth_limit": OFTEN,
        "sources": ["/"],
    }
    with open_project(place, serve=served, spark={"analyse": False}, **settings) as project:
        project.create()
        project.apply(workflow)
        yield project


@pytest.fixture(scope="session")
def shop_as_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shop")
    with opened_shop(place):
        return place


@pytest.fixture
def shop(shop_as_made: Path) -> Iterator[Project]:
    memory = Path("/dev/shm")  # where waiting for the disk costs nothing
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        shutil.copytree(shop_as_made, place, dirs_exist_ok=True)
        served = {
            "max_upload_mb": 1,
            "rate_limit": OFTEN,
            "read_rate_limit": OFTEN,
            "failed_auth_limit": OFTEN,
            "sources": ["/"],
        }
        with open_project(place, serve=served, spark={"analyse": False}) as project:
            yield project


@pytest.fixture
def prompt() -> Prompt:
    return Prompt()


@pytest.fixture
def app(prompt: Prompt, shop: Project) -> FastAPI:
    return api(prompt, shop)


@pytest.fixture
def client(app: FastAPI) -> TestClient:
    return TestClient(app, base_url="http://localhost:8620")
