"""A mongod with access control on, its users, and the least role of the proxy's own account."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pymongo
from bson import json_util
from pymongo.errors import PyMongoError

from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK

SECURITY_DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "security.md"
ROOT_PASSWORD = "root/pass:word@1"
ACCOUNT_PASSWORD = "p@ss/w:rd%25"
PASSWORD = "secret"


def least_role() -> dict[str, Any]:
    """The ``createRole`` command that docs/security.md tells administrators to paste."""
    found = re.search(
        r"db\.getSiblingDB\(\"admin\"\)\.runCommand\((\{.*?\})\)\n```", SECURITY_DOCUMENT.read_text(), re.DOTALL
    )
    assert found is not None, "docs/security.md shows no createRole command"
    relaxed = re.sub(r"([{,]\s*)(\w+):", r'\1"\2":', found.group(1))
    role: dict[str, Any] = json_util.loads(re.sub(r",(\s*[\]}])", r"\1", relaxed))
    return role


class GuardedMongod(MongodProcess):
    """A mongod with ``--auth``; ``root`` may do everything, ``tsproxy`` has the documented least role."""

    @property
    def root_uri(self) -> str:
        """The connection string of the administrator."""
        return self.uri_of("root", ROOT_PASSWORD, "admin")

    @property
    def account_uri(self) -> str:
        """The connection string for the proxy."""
        return self.uri_of("tsproxy", ACCOUNT_PASSWORD, "admin")

    def uri_of(self, user: str, password: str, database: str) -> str:
        """The connection string of a user, straight to this mongod."""
        from urllib.parse import quote_plus

        options = f"replicaSet={self.replica_set}" if self.replica_set else "directConnection=true"
        return f"mongodb://{user}:{quote_plus(password)}@{self.address}/{database}?{options}&authSource={database}"

    def through(self, proxy_address: str, uri: str) -> str:
        """The connection string of the same user through a proxy, which shows no set of the name of this mongod's."""
        direct = uri.replace(f"replicaSet={self.replica_set}", "directConnection=true")
        return direct.replace(self.address, proxy_address)

    def client(self, **options: Any) -> pymongo.MongoClient[dict[str, Any]]:
        """A new client of the administrator."""
        return pymongo.MongoClient(self.root_uri, **{"serverSelectionTimeoutMS": 20_000, **options})

    def create_administrator(self) -> None:
        """The administrator, by the localhost exception."""
        with pymongo.MongoClient[dict[str, Any]](f"mongodb://{self.address}/?directConnection=true") as first:
            first.admin.command("createUser", "root", pwd=ROOT_PASSWORD, roles=["root"])

    def create_accounts(self) -> None:
        """The administrator and the proxy's account."""
        self.create_administrator()
        role = least_role()
        self.shared_client.admin.command(role)
        self.shared_client.admin.command("createUser", "tsproxy", pwd=ACCOUNT_PASSWORD, roles=[role["createRole"]])

    def create_user(self, database: str, name: str, roles: Sequence[str | Mapping[str, str]], **options: Any) -> None:
        """A user of ``database`` with these roles."""
        self.shared_client[database].command("createUser", name, pwd=PASSWORD, roles=list(roles), **options)


def errors_of(client: pymongo.MongoClient[dict[str, Any]], database: str, command: dict[str, Any]) -> Any:
    """The reply, or the code, its name and the message of the refusal."""
    try:
        return client[database].command(command)
    except PyMongoError as error:
        details = getattr(error, "details", None) or {}
        return (details.get("code"), details.get("codeName"), details.get("errmsg"))


__all__ = ["LOOPBACK", "PASSWORD", "GuardedMongod", "errors_of", "least_role"]
