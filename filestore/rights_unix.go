//go:build linux || darwin

package filestore

import (
	"io/fs"
	"os"
	"syscall"
)

// giveTo gives a file to the owner of a directory, which only the superuser may do, or else to its group, which its members may do. A
// process that may do neither keeps the file: then the directory's rights for all others count.
func giveTo(path string, dir fs.FileInfo) {
	of := dir.Sys().(*syscall.Stat_t)
	if os.Chown(path, int(of.Uid), int(of.Gid)) != nil {
		_ = os.Chown(path, -1, int(of.Gid))
	}
}
