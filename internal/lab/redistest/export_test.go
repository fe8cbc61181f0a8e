package redistest

// ErrInUse is what StartAt returns for a port that is taken.
var ErrInUse = errInUse

// StartAt starts a server on the port of another one.
func StartAt(dir string, other *Server) error {
	p := &process{bin: other.p.bin, dir: dir, port: other.p.port, args: options(other.p.port)}
	return p.run()
}
