//go:build linux || darwin

package rendezvous

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Directory returns the directory in which the programs of this user meet, and makes it if need be: below
// XDG_RUNTIME_DIR if that is set, otherwise below the user's cache or, without a home, below the directory for
// temporary files. Only this user may use the directory. A link, or a directory of a different user, is an error.
func Directory() (string, error) {
	if base := os.Getenv("XDG_RUNTIME_DIR"); base != "" {
		if !filepath.IsAbs(base) {
			return "", fmt.Errorf("XDG_RUNTIME_DIR: %s is no absolute path", base)
		}

		// A user who may write to the base could replace the directory of this user.
		if err := check(base, 0o022); err != nil {
			return "", fmt.Errorf("XDG_RUNTIME_DIR: %w", err)
		}

		return Private(filepath.Join(base, "throttle"))
	}

	cache, err := os.UserCacheDir()
	if err != nil {
		return Private(filepath.Join(os.TempDir(), "throttle-"+strconv.Itoa(os.Geteuid())))
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}

	return Private(filepath.Join(cache, "throttle"))
}

// Private returns path after it has made sure that path is a directory, and that only this user may use it.
func Private(path string) (string, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return path, check(path, 0o077)
}

// check returns an error for a path that is a link or no directory, belongs to a different user, or gives other users
// one of the forbidden rights.
func check(path string, forbidden fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}

	switch system := info.Sys().(*syscall.Stat_t); {
	case info.Mode().Type() == fs.ModeSymlink:
		return fmt.Errorf("%s is a link: use the directory itself", path)
	case !info.IsDir():
		return fmt.Errorf("%s is no directory", path)
	case int(system.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user: use a directory of your own", path)
	case info.Mode().Perm()&forbidden != 0:
		return fmt.Errorf("%s gives rights to other users (%v): chmod 700 takes them away", path, info.Mode().Perm())
	}

	return nil
}
