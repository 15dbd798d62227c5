#!/bin/sh
# The fleet's certificates: sh certificates.sh NAME [FOLDER], NAME being the host name or IP address that vehicles use.
# FOLDER (default: the current one) gets a CA, ca.key and ca.crt, unless it has one, and always a new server.key and
# server.pem, signed with it. So the same command renews the server's certificate, or replaces a stolen server.key.
# The certificate names localhost too: the SuperLink starts the server's app, which calls it there.
set -eu
LC_ALL=C
export LC_ALL
umask 077

CA_DAYS=3650
SERVER_DAYS=365

refuse() {
  echo "certificates.sh: $1" >&2
  exit 2
}

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  refuse "$# arguments, should be NAME [FOLDER], as in: sh certificates.sh fleet.example.com certificates"
fi
name=$1
folder=${2:-.}
command -v openssl > /dev/null || refuse "openssl is not installed, should be"

label='[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?'
byte='(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])'
is() { printf '%s\n' "$name" | grep -Eq "^$1\$"; }
case $name in
  *[!A-Za-z0-9.:-]* | '') what= ;;
  *:*) what=IP ;;
  *[!0-9.]*) what=DNS && [ ${#name} -le 253 ] && is "($label\.)*$label" || what= ;;
  *) what=IP && is "($byte\.){3}$byte" || what= ;;
esac
[ -n "$what" ] || refuse "name: '$name', should be a host name or an IP address, as in fleet.example.com or 192.0.2.7"

case $folder in -*) refuse "folder: '$folder', should not begin with a dash" ;; esac
mkdir -p "$folder" || refuse "folder: '$folder' cannot be made"
cd "$folder"
work=$(mktemp -d ./certificates.XXXXXX) || refuse "folder: '$folder' cannot be written to"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

for file in ca.key ca.crt; do
  if [ -e "$file" ] && { [ ! -e ca.key ] || [ ! -e ca.crt ]; }; then
    refuse "$folder: has $file alone, should have both ca.key and ca.crt, or neither for a new CA"
  fi
done

cat > "$work/openssl.cnf" << END
[req]
distinguished_name = subject
prompt = no
[subject]
CN = MPT fleet
[ca]
basicConstraints = critical, CA:true, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
subjectAltName = $what:$name, DNS:localhost, IP:127.0.0.1, IP:::1
END

run() { # what it does, and the command; its words are shown only where it fails
  doing=$1
  shift
  "$@" > "$work/said" 2>&1 || { cat "$work/said" >&2 && refuse "$doing: openssl has failed, see above"; }
}
new_key() { run "a new key" openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-384 -out "$1"; }
ends() { openssl x509 -in "$1" -noout -enddate | cut -d= -f2; }

ca=.
if [ ! -e ca.crt ]; then
  ca=$work
  new_key "$ca/ca.key"
  run "a new CA" openssl req -new -x509 -sha384 -config "$work/openssl.cnf" -extensions ca -subj "/CN=MPT fleet CA" \
    -days "$CA_DAYS" -key "$ca/ca.key" -out "$ca/ca.crt"
fi
new_key "$work/server.key"
run "a request" openssl req -new -sha384 -config "$work/openssl.cnf" -subj "/CN=MPT fleet server" \
  -key "$work/server.key" -out "$work/server.csr"
run "a certificate for $name" openssl x509 -req -sha384 -in "$work/server.csr" -CA "$ca/ca.crt" -CAkey "$ca/ca.key" \
  -set_serial "0x$(openssl rand -hex 16)" -days "$SERVER_DAYS" \
  -extfile "$work/openssl.cnf" -extensions server -out "$work/server.pem"
run "a check of it against ca.crt" openssl verify -x509_strict -CAfile "$ca/ca.crt" "$work/server.pem"

chmod 600 "$ca/ca.key"
chmod 644 "$ca/ca.crt" "$work/server.pem"
if [ "$ca" = . ]; then
  echo "ca.key, ca.crt: were there, until $(ends ca.crt)"
else
  mv "$ca/ca.key" "$ca/ca.crt" .
  echo "ca.key, ca.crt: a new CA, until $(ends ca.crt); vehicles need ca.crt, nobody but this script needs ca.key"
fi
renewed=new
[ ! -e server.pem ] || renewed=renewed
mv "$work/server.key" "$work/server.pem" .
echo "server.key, server.pem: $renewed, for $what:$name and localhost, until $(ends server.pem)"
openssl x509 -in ca.crt -noout -checkend $((SERVER_DAYS * 86400)) > /dev/null ||
  echo "ca.crt ends before server.pem does: replace the CA before that, docs/how-to/keys-and-certificates.md says how"
