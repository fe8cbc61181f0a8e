package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// The portCount ports from firstPort on are below the ports that systems hand out by
// themselves to outgoing connections. So while a server is down nobody gets
// its port by chance, least of all the client that tries to reach it.
const (
	firstPort = 12000
	portCount = 20000
)

// offered holds the ports that this test binary was given, so that none is
// given twice: a killed server keeps its port for a restart.
var offered = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// FreePort returns a port of the loopback on which nobody listens now, and never the same port twice. It begins its search
// at a random port, because test binaries run side by side.
func FreePort() (int, error) {
	offered.Lock()
	defer offered.Unlock()

	begin := rand.IntN(portCount)
	for i := range portCount {
		port := firstPort + (begin+i)%portCount
		if offered.ports[port] {
			continue
		}

		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return 0, err
		}

		offered.ports[port] = true
		return port, nil
	}

	return 0, errors.New("no free port on 127.0.0.1")
}
