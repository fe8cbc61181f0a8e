package pgtest

// Standby starts a server that has a copy of this server's data, and follows it. This server must have been started
// with settings that allow it.
func (s *Server) Standby(name string, settings ...string) *Server {
	s.t.Helper()
	standby := newServer(s.t, "", append(s.settings[len(quick):len(s.settings):len(s.settings)], settings...))
	standby.must("pg_basebackup", "-D", standby.data(), "-d", s.URL()+"&application_name="+name, "-R", "-X", "stream", "-c", "fast", "--no-sync")
	standby.Restart()
	return standby
}

// Promote makes a standby the server that others write to.
func (s *Server) Promote() {
	s.t.Helper()
	s.must("pg_ctl", "promote", "-D", s.data(), "-w")
}
