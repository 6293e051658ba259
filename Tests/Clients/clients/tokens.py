"""JSON Web Tokens, right ones and wrong ones. The asymmetric kinds are signed by the openssl program."""

import base64
import hashlib
import hmac
import json
import os
import re
import subprocess
import tempfile
import time

HASHES = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def compact(value) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def in_seconds(seconds: int) -> int:
    return int(time.time()) + seconds


def sign(secret: str | bytes, claims: dict, algorithm: str = "HS256", header: dict | None = None) -> str:
    """A token with exactly these claims."""
    key = secret.encode() if isinstance(secret, str) else secret
    head = {"alg": algorithm, "typ": "JWT"} | (header or {})
    signed = base64url(compact(head)) + "." + base64url(compact(claims))
    return signed + "." + base64url(hmac.new(key, signed.encode(), HASHES[algorithm]).digest())


def unsigned(claims: dict) -> str:
    return base64url(compact({"alg": "none", "typ": "JWT"})) + "." + base64url(compact(claims)) + "."


def of_role(secret: str, role: str, seconds: int = 3600, **more) -> str:
    return sign(secret, {"role": role, "exp": in_seconds(seconds)} | more)


class KeyPair:
    """A private key in a file that goes with the object, its public half as a JWK, and signatures by it."""

    def __init__(self, algorithm: str, kid: str):
        self.algorithm = algorithm
        self.kid = kid
        self.file = tempfile.NamedTemporaryFile(suffix=".pem")
        parameters = {
            "RS256": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
            "ES256": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
            "EdDSA": ["-algorithm", "ED25519"],
        }[algorithm]
        openssl("genpkey", *parameters, "-out", self.file.name)

    def sign(self, claims: dict, header: dict | None = None) -> str:
        head = {"alg": self.algorithm, "typ": "JWT", "kid": self.kid} | (header or {})
        text = base64url(compact({k: v for k, v in head.items() if v is not None})) + "." + base64url(compact(claims))
        return text + "." + base64url(self._signature(text.encode()))

    def _signature(self, data: bytes) -> bytes:
        with tempfile.NamedTemporaryFile() as message:
            message.write(data)
            message.flush()
            if self.algorithm == "EdDSA":
                return openssl("pkeyutl", "-sign", "-rawin", "-inkey", self.file.name, "-in", message.name)
            made = openssl("dgst", "-sha256", "-sign", self.file.name, message.name)
        return raw_from_der(made) if self.algorithm == "ES256" else made

    def jwk(self) -> dict:
        common = {"kid": self.kid, "alg": self.algorithm, "use": "sig"}
        if self.algorithm == "RS256":
            modulus = openssl("rsa", "-in", self.file.name, "-noout", "-modulus").decode().split("=")[1].strip()
            return common | {"kty": "RSA", "n": base64url(bytes.fromhex(modulus)), "e": "AQAB"}
        text = openssl("pkey", "-in", self.file.name, "-noout", "-text_pub").decode()
        public = bytes.fromhex(re.sub(r"[\s:]", "", re.search(r"pub:([0-9a-f\s:]+)", text)[1]))
        if self.algorithm == "EdDSA":
            return common | {"kty": "OKP", "crv": "Ed25519", "x": base64url(public)}
        return common | {"kty": "EC", "crv": "P-256", "x": base64url(public[1:33]), "y": base64url(public[33:])}


def raw_from_der(signature: bytes) -> bytes:
    """JWS wants r and s side by side; openssl writes them as ASN.1."""
    length = signature[3]
    r, s = signature[4 : 4 + length], signature[6 + length :]
    return b"".join(part.lstrip(b"\0").rjust(32, b"\0") for part in (r, s))


def openssl(*arguments: str) -> bytes:
    return subprocess.run(["openssl", *arguments], check=True, capture_output=True, env=os.environ).stdout
