#!/bin/sh
# An operator's certificate for the proxy of deploy/nginx: sh operator-certificate.sh NAME [FOLDER], as in alice.
# FOLDER (default: the current one) gets the operators' CA, operators-ca.key and operators-ca.crt, unless it has one, and
# always a new operator-NAME.key and operator-NAME.pem, signed with it. It is a CA of its own: the fleet's CA, which
# vehicles trust, says who the server is; this one says who may start runs, and the proxy alone asks for it.
set -eu
LC_ALL=C
export LC_ALL
umask 077

CA_DAYS=3650
OPERATOR_DAYS=365

refuse() {
  echo "operator-certificate.sh: $1" >&2
  exit 2
}

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  refuse "$# arguments, should be NAME [FOLDER], as in: sh operator-certificate.sh alice operators"
fi
name=$1
folder=${2:-.}
command -v openssl > /dev/null || refuse "openssl is not installed, should be"
case $name in
  *[!A-Za-z0-9-]* | -* | '') refuse "name: '$name', should be letters, digits and dashes, as in alice" ;;
esac
[ ${#name} -le 40 ] || refuse "name: '$name', should have at most 40 letters"

case $folder in -*) refuse "folder: '$folder', should not begin with a dash" ;; esac
mkdir -p "$folder" || refuse "folder: '$folder' cannot be made"
cd "$folder"
work=$(mktemp -d ./certificates.XXXXXX) || refuse "folder: '$folder' cannot be written to"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

for file in operators-ca.key operators-ca.crt; do
  if [ -e "$file" ] && { [ ! -e operators-ca.key ] || [ ! -e operators-ca.crt ]; }; then
    refuse "$folder: has $file alone, should have both operators-ca.key and operators-ca.crt, or neither for a new CA"
  fi
done

cat > "$work/openssl.cnf" << END
[req]
distinguished_name = subject
prompt = no
[subject]
CN = MPT operator
[ca]
basicConstraints = critical, CA:true, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[operator]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
END

run() { # what it does, and the command; its words are shown only where it fails
  doing=$1
  shift
  "$@" > "$work/said" 2>&1 || { cat "$work/said" >&2 && refuse "$doing: openssl has failed, see above"; }
}
new_key() { run "a new key" openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-384 -out "$1"; }
ends() { openssl x509 -in "$1" -noout -enddate | cut -d= -f2; }

ca=.
if [ ! -e operators-ca.crt ]; then
  ca=$work
  new_key "$ca/operators-ca.key"
  run "a new CA" openssl req -new -x509 -sha384 -config "$work/openssl.cnf" -extensions ca \
    -subj "/CN=MPT operators CA" -days "$CA_DAYS" -key "$ca/operators-ca.key" -out "$ca/operators-ca.crt"
fi
new_key "$work/operator.key"
run "a request" openssl req -new -sha384 -config "$work/openssl.cnf" -subj "/CN=$name" \
  -key "$work/operator.key" -out "$work/operator.csr"
run "a certificate for $name" openssl x509 -req -sha384 -in "$work/operator.csr" -CA "$ca/operators-ca.crt" \
  -CAkey "$ca/operators-ca.key" -set_serial "0x$(openssl rand -hex 16)" -days "$OPERATOR_DAYS" \
  -extfile "$work/openssl.cnf" -extensions operator -out "$work/operator.pem"
run "a check of it against operators-ca.crt" openssl verify -x509_strict -purpose sslclient \
  -CAfile "$ca/operators-ca.crt" "$work/operator.pem"

chmod 600 "$ca/operators-ca.key"
chmod 644 "$ca/operators-ca.crt" "$work/operator.pem"
if [ "$ca" = . ]; then
  echo "operators-ca.key, operators-ca.crt: were there, until $(ends operators-ca.crt)"
else
  mv "$ca/operators-ca.key" "$ca/operators-ca.crt" .
  echo "operators-ca.key, operators-ca.crt: a new CA, until $(ends operators-ca.crt);" \
    "the proxy needs operators-ca.crt, nobody but this script needs operators-ca.key"
fi
renewed=new
[ ! -e "operator-$name.pem" ] || renewed=renewed
mv "$work/operator.key" "operator-$name.key"
mv "$work/operator.pem" "operator-$name.pem"
echo "operator-$name.key, operator-$name.pem: $renewed, until $(ends "operator-$name.pem")"
