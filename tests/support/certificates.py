"""Certificates made for one test run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Certificates:
    """PEM files: an authority, a server certificate and a client certificate that it signed."""

    authority: Path
    server: Path
    client: Path
    issuer: trustme.CA

    @classmethod
    def make(cls, directory: Path, organization: str = "tsproxy tests") -> Certificates:
        """Write the files into ``directory``."""
        directory.mkdir(parents=True, exist_ok=True)
        issuer = trustme.CA(organization_name=organization)
        made = cls(directory / "ca.pem", directory / "server.pem", directory / "client.pem", issuer)
        issuer.cert_pem.write_to_path(made.authority)
        issuer.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(made.server)
        client = issuer.issue_cert("client@example.org", common_name="client", organization_name=organization)
        client.private_key_and_cert_chain_pem.write_to_path(made.client)
        return made
