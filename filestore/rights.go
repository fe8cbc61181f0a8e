package filestore

import (
	"io/fs"
	"os"
)

// matchDir lets a file be used by those who may use the directory: it gets the owner and the group of the directory, as far as
// this process may give it to them, and the rights.
func matchDir(path, dir string) error {
	i, err := os.Stat(dir)
	if err != nil {
		return err
	}
	giveTo(path, i)
	return os.Chmod(path, fileMode(i))
}

// fileMode is the mode of files in a directory: that of the directory, without the right to
// search it.
func fileMode(dir fs.FileInfo) fs.FileMode { return dir.Mode().Perm()&0o666 | 0o600 }
