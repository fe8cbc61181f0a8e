package filestore

import (
	"io/fs"
	"os"
)

// Bells wake nodes.
type bells interface {
	// listen has wake called when another node rings for this one, until stop is called.
	listen(node int64, wake func()) (stop func(), err error)

	// isDead reports whether a node that listened has died.
	isDead(node int64) bool

	// ring wakes a node, if it listens.
	ring(node int64)

	// ringAll wakes all nodes that listen, but this one.
	ringAll(but int64)
}

// matchDir lets a file be used by those who may use the directory.
func matchDir(path, dir string) error {
	i, err := os.Stat(dir)
	if err != nil {
		return err
	}
	return os.Chmod(path, fileMode(i))
}

// fileMode is the mode of files in a directory: that of the directory, without the right to
// search it.
func fileMode(dir fs.FileInfo) fs.FileMode { return dir.Mode().Perm()&0o666 | 0o600 }
