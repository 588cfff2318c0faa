// Command release makes what a release consists of: for each platform an archive
// with the statically linked program, its licence and those of what is linked into
// it, and a software bill of materials; and the checksums of all of them.
//
//	release [-C DIR] [-o DIR] [-platforms OS/ARCH,…]
//	release [-C DIR] -check OS/ARCH
//
// The same commit and the same Go version give the same bytes, whatever the
// machine, the directory and the time. With -check it makes one platform's files
// twice, from two clones with two build caches, and fails when they differ.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
)

// platforms are those of a release.
const platforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64"

func main() {
	dir := flag.String("C", ".", "root of the repository")
	out := flag.String("o", "dist", "directory for the files")
	list := flag.String("platforms", platforms, "platforms, separated by commas")
	twice := flag.String("check", "", "make this platform's files twice and compare them")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	err := run(ctx, *dir, *out, *list, *twice)
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, out, list, twice string) error {
	if twice != "" {
		p, err := parsePlatform(twice)
		if err != nil {
			return err
		}

		return check(ctx, dir, p)
	}

	var all []platform

	for s := range strings.SplitSeq(list, ",") {
		p, err := parsePlatform(s)
		if err != nil {
			return err
		}

		all = append(all, p)
	}

	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}

	files, err := release(ctx, source{dir: dir}, out, all)
	if err != nil {
		return err
	}

	for _, f := range files {
		fmt.Println(f)
	}

	return nil
}
