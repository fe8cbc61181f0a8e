package fleet

import (
	"cmp"
	"os"
	"runtime/debug"
	"sync"
)

const module = "github.com/fleetthrottle/throttle"

// libraryVersion returns the version of throttle that is linked; "(devel)" for a checkout.
var libraryVersion = sync.OnceValue(func() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range b.Deps {
		if m.Path != module {
			continue
		}
		if m.Replace != nil {
			return cmp.Or(m.Replace.Version, "(devel)") // a folder has no version
		}
		return m.Version
	}
	return "(devel)"
})

// hostname returns the machine's name.
var hostname = sync.OnceValue(func() string {
	name, _ := os.Hostname()
	return name
})
