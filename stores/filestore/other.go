//go:build !linux && !darwin

package filestore

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"time"
)

// errUnsupported says that the operating system has no clock and no lock that are known to do.
var errUnsupported = errors.New("filestore needs Linux or macOS: " + runtime.GOOS + " has no clock and no lock that are known to do; use memstore or redisstore")

type thisMachine struct{}

func (thisMachine) boot() (string, error)        { return "", errUnsupported }
func (thisMachine) clock() (int64, int64, error) { return 0, 0, errUnsupported }
func sharedBy(string) (string, error)            { return "", errUnsupported }
func lock(*os.File, time.Duration) (bool, error) { return false, errUnsupported }
func unlock(*os.File)                            {}
func giveTo(*os.File, fs.FileInfo)               {}
func links(fs.FileInfo) uint64                   { return 1 }

const openFlags = 0

type pipes struct{ *folder }

func (pipes) listen(int64, func()) (func(), error) { return nil, errUnsupported }
func (pipes) ring(int64)                           {}
func (pipes) ringAll(int64)                        {}
func (pipes) isDead(int64) bool                    { return false }
func (pipes) tidy(func(int64) bool)                {}
