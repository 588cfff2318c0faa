#!/bin/sh
# Starts nginx in the foreground: nginx.sh LISTEN BACKEND DIR, the last an empty directory for its files.
set -eu
mkdir "$3/tmp"
sed "s/LISTEN/$1/; s/BACKEND/$2/" nginx.conf >"$3/nginx.conf"
exec nginx -p "$3" -c nginx.conf -e stderr
