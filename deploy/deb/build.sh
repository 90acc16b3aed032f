#!/bin/sh
# Makes the Debian package of a compiled hub: deploy/deb/build.sh target/release/resync-hub [FOLDER]
# It writes resync-hub_VERSION_ARCHITECTURE.deb into the folder (here, unless said otherwise) and prints its name.
set -eu

binary=${1:?"usage: $0 BINARY [FOLDER]"}
folder=${2:-.}
here=$(cd "$(dirname "$0")" && pwd)
source=$here/../..
maintainer="The resync-hub project <resync-hub@example.org>"
version=$("$binary" --version | cut -d ' ' -f 2)
architecture=$(dpkg --print-architecture)
# The newest symbol of the C library that the program asks for is the oldest C library that it runs with.
libc=$(grep -aoE 'GLIBC_2\.[0-9]+' "$binary" | sort -uV | tail -n 1 | cut -d _ -f 2)

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
install -D -m 755 "$binary" "$tree/usr/bin/resync-hub"
if command -v strip >/dev/null; then
    strip "$tree/usr/bin/resync-hub"
fi
install -D -m 644 "$source/deploy/hub.toml" "$tree/etc/resync-hub/hub.toml"
install -d "$tree/usr/lib/systemd/system"
sed 's|/usr/local/bin/|/usr/bin/|' "$source/deploy/resync-hub.service" >"$tree/usr/lib/systemd/system/resync-hub.service"
install -m 644 "$source/deploy/resync-hub.socket" "$tree/usr/lib/systemd/system/"

# The program writes its own papers.
install -d "$tree/usr/share/man/man1" "$tree/usr/share/bash-completion/completions" "$tree/usr/share/zsh/vendor-completions" \
    "$tree/usr/share/fish/vendor_completions.d"
"$binary" man "$tree/usr/share/man/man1" >/dev/null
gzip -9n "$tree/usr/share/man/man1/"*.1
"$binary" completions bash >"$tree/usr/share/bash-completion/completions/resync-hub"
"$binary" completions zsh >"$tree/usr/share/zsh/vendor-completions/_resync-hub"
"$binary" completions fish >"$tree/usr/share/fish/vendor_completions.d/resync-hub.fish"

documents=$tree/usr/share/doc/resync-hub
install -d "$documents/examples"
# In their folders, so that they lead to each other as in the repository.
for file in "$source"/*.md "$source/deploy/README.md" "$source"/docs/*.md "$source"/docs/*/*.md; do
    install -D -m 644 "$file" "$documents/${file#"$source/"}"
done
gzip -9n >"$documents/changelog.gz" <<CHANGELOG
resync-hub ($version) unstable; urgency=medium

  * What has changed is in CHANGELOG.md.

 -- $maintainer  $(date -R -r "$source/CHANGELOG.md")
CHANGELOG
{
    printf 'MIT or Apache 2.0, as you like. Apache 2.0 is in /usr/share/common-licenses/Apache-2.0, MIT is:\n\n'
    cat "$source/LICENSE-MIT"
} >"$documents/copyright"
for file in nginx.conf Caddyfile prometheus/prometheus.yml prometheus/kubernetes.yml prometheus/alerts.yml grafana/dashboards/resync-hub.json; do
    install -m 644 "$source/deploy/$file" "$documents/examples/"
done
find "$tree/usr/lib" "$tree/usr/share" -type f -exec chmod 644 {} +
find "$tree/usr" -type d -exec chmod 755 {} +

install -d "$tree/DEBIAN"
install -m 755 "$here/postinst" "$here/prerm" "$here/postrm" "$tree/DEBIAN/"
echo /etc/resync-hub/hub.toml >"$tree/DEBIAN/conffiles"
cat >"$tree/DEBIAN/control" <<CONTROL
Package: resync-hub
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -sk --exclude=DEBIAN "$tree" | cut -f 1)
Depends: libc6 (>= $libc), libgcc-s1
Recommends: ca-certificates
Section: web
Priority: optional
Description: WebSub hub for ResourceSync communities
 A hub that takes notifications of changes from Sources and delivers them to
 subscribers: in order, signed, with retries that survive a restart. What it
 acknowledged is on the disk.
CONTROL
dpkg-deb --root-owner-group --build "$tree" "$folder/resync-hub_${version}_$architecture.deb" >/dev/null
echo "$folder/resync-hub_${version}_$architecture.deb"
