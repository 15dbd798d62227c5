"""The certificates of deploy/certificates.sh and of a loopback fleet, judged by openssl and by Python's own TLS."""

import contextlib
import shutil
import socket
import ssl
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

if shutil.which("openssl") is None:
    pytest.skip("openssl is not installed", allow_module_level=True)
pytest.importorskip("cryptography", reason="the extra fleet is not installed")

SCRIPT = Path(__file__).parents[3] / "deploy" / "certificates.sh"
WITHOUT_KEY_USAGE = """
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:secp384r1 -nodes -days 3650 \
  -keyout ca.key -out ca.crt -subj "/CN=fleet CA" -addext "basicConstraints=critical,CA:true"
openssl req -newkey ec -pkeyopt ec_paramgen_curve:secp384r1 -nodes -keyout server.key -out server.csr \
  -subj "/CN=localhost" -addext "subjectAltName=DNS:localhost"
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -copy_extensions copy \
  -out server.pem
"""


def run(*command, cwd=None):
    return subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)


def certificates(*arguments, cwd=None):
    return run("sh", SCRIPT, *arguments, cwd=cwd)


def made(folder, name="localhost"):
    done = certificates(name, folder)
    assert done.returncode == 0, done.stderr
    return folder


def strict(folder, *options):
    return run("openssl", "verify", "-x509_strict", "-purpose", "sslserver", *options,
               "-CAfile", folder / "ca.crt", folder / "server.pem")  # fmt: skip


def handshake(server, ca, name="localhost"):
    """Greet the server that has this folder's certificate, on loopback; as strictly as Python 3.13 does by default."""
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(server / "server.pem", server / "server.key")
    asked = ssl.create_default_context(cafile=str(ca))
    asked.verify_flags |= ssl.VERIFY_X509_STRICT

    def serve(listener):
        with contextlib.suppress(OSError), served.wrap_socket(listener.accept()[0], server_side=True) as connection:
            connection.sendall(b"welcome")

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        listener.settimeout(30)
        pool.submit(serve, listener)
        with (
            socket.create_connection(listener.getsockname(), timeout=30) as plain,
            asked.wrap_socket(plain, server_hostname=name) as connection,
        ):
            return connection.recv(7)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("fleet.example.com", ("-verify_hostname", "fleet.example.com"), ("-verify_hostname", "example.com")),
        ("192.0.2.7", ("-verify_ip", "192.0.2.7"), ("-verify_ip", "192.0.2.8")),
        ("2001:db8::7", ("-verify_ip", "2001:db8::7"), ("-verify_ip", "2001:db8::8")),
    ],
)
def test_openssl_takes_them_at_its_strictest_and_for_their_names_alone(tmp_path, name, right, wrong):
    made(tmp_path, name)
    assert strict(tmp_path, *right).returncode == 0
    assert "mismatch" in strict(tmp_path, *wrong).stderr
    for here in (("-verify_hostname", "localhost"), ("-verify_ip", "127.0.0.1"), ("-verify_ip", "::1")):
        assert strict(tmp_path, *here).returncode == 0, "the SuperLink's own processes call it there"


def test_a_ca_without_key_usage_is_refused_by_all_of_them(tmp_path):
    done = run("sh", "-euc", WITHOUT_KEY_USAGE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "key usage" in strict(tmp_path).stderr
    with pytest.raises(ssl.SSLCertVerificationError, match="key usage"):
        handshake(tmp_path, tmp_path / "ca.crt")
    before = (tmp_path / "server.pem").read_bytes()
    renewal = certificates("localhost", tmp_path)
    assert renewal.returncode == 2
    assert "key usage" in renewal.stderr
    assert (tmp_path / "server.pem").read_bytes() == before


@pytest.mark.parametrize("name", ["fleet.example.com", "192.0.2.7"])
def test_python_takes_them_at_its_strictest(tmp_path, name):
    made(tmp_path, name)
    for called in (name, "localhost", "127.0.0.1"):
        assert handshake(tmp_path, tmp_path / "ca.crt", called) == b"welcome"
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(tmp_path, tmp_path / "ca.crt", "other.example.com")


def test_those_of_a_loopback_fleet_are_taken_likewise(tmp_path):
    from mpt.fleet.flower.loopback import make_certificates

    make_certificates(tmp_path)
    assert strict(tmp_path, "-verify_hostname", "localhost").returncode == 0
    assert strict(tmp_path, "-verify_ip", "127.0.0.1").returncode == 0
    assert handshake(tmp_path, tmp_path / "ca.crt") == b"welcome"
    assert handshake(tmp_path, tmp_path / "ca.crt", "127.0.0.1") == b"welcome"


def test_both_ways_give_them_the_same_extensions(tmp_path):
    from cryptography import x509

    from mpt.fleet.flower.loopback import make_certificates

    (tmp_path / "loopback").mkdir()
    make_certificates(tmp_path / "loopback")
    made(tmp_path / "script")
    kinds = (x509.BasicConstraints, x509.KeyUsage, x509.ExtendedKeyUsage)

    def extensions(path):
        found = x509.load_pem_x509_certificate(path.read_bytes()).extensions
        return {one.oid: (one.critical, one.value if isinstance(one.value, kinds) else None) for one in found}

    for file in ("ca.crt", "server.pem"):
        assert extensions(tmp_path / "loopback" / file) == extensions(tmp_path / "script" / file)


def test_a_second_run_renews_the_servers_certificate_under_the_same_ca(tmp_path):
    first = certificates("localhost", cwd=tmp_path)
    assert "a new CA" in first.stdout
    assert "server.pem: new, for DNS:localhost and localhost" in first.stdout
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(before) == ["ca.crt", "ca.key", "server.key", "server.pem"]
    (tmp_path / "ca.key").chmod(0o644)

    second = certificates("localhost", cwd=tmp_path)
    assert "were there" in second.stdout
    assert "server.pem: renewed, for DNS:localhost and localhost" in second.stdout
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert [name for name in after if after[name] == before[name]] == [n for n in after if n.startswith("ca.")]
    assert sorted(after) == sorted(before)
    assert {path.name for path in tmp_path.iterdir() if stat.S_IMODE(path.stat().st_mode) == 0o600} == {
        "ca.key",
        "server.key",
    }
    assert handshake(tmp_path, tmp_path / "ca.crt") == b"welcome"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "0 arguments, should be NAME"),
        (("a.example", "folder", "more"), "3 arguments"),
        (("",), "name: ''"),
        (("-h",), "name: '-h'"),
        (("fleet_example",), "name: 'fleet_example'"),
        (("fleet..example",), "name: 'fleet..example'"),
        (("300.1.1.1",), "name: '300.1.1.1'"),
        (("a.example,DNS:b.example",), "name: 'a.example,DNS:b.example'"),
        (("a.example\nIP:1.2.3.4",), "name: 'a.example"),
        ((f"{'a' * 64}.example",), "name: 'aaa"),
        (("fe80::zz",), "a certificate for fe80::zz"),
        (("a.example", "-folder"), "folder: '-folder'"),
        (("a.example", "/dev/null"), "folder: '/dev/null'"),
    ],
)
def test_nonsense_is_refused_and_leaves_nothing(tmp_path, arguments, words):
    done = certificates(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("lost", ["ca.key", "ca.crt"])
def test_half_a_ca_is_no_ca(tmp_path, lost):
    made(tmp_path)
    (tmp_path / lost).unlink()
    before = (tmp_path / "server.pem").read_bytes()
    done = certificates("localhost", tmp_path)
    assert done.returncode == 2
    assert "alone, should have both" in done.stderr
    assert (tmp_path / "server.pem").read_bytes() == before


def test_a_ca_is_replaced_without_an_outage(tmp_path):
    old, new = made(tmp_path / "old"), made(tmp_path / "new")
    both = tmp_path / "both.crt"
    both.write_bytes((old / "ca.crt").read_bytes() + (new / "ca.crt").read_bytes())
    for server, ca in ((old, old / "ca.crt"), (old, both), (new, both), (new, new / "ca.crt")):
        assert handshake(server, ca) == b"welcome"
    for server, ca in ((new, old / "ca.crt"), (old, new / "ca.crt")):
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(server, ca)
