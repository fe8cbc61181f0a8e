package rendezvous

import "net"

// Own returns the listener: macOS does not say whose a connection is.
func Own(l net.Listener, _ func(line string)) net.Listener { return l }
