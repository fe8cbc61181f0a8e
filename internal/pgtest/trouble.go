package pgtest

import (
	"os"
	"time"
)

// Stop ends all sessions, and then the server, if it runs.
func (s *Server) Stop() { s.end(os.Interrupt) }

// Kill ends the server as a crash does, if it runs. What was committed is there when it is started again.
func (s *Server) Kill() { s.end(os.Kill) }

func (s *Server) end(how os.Signal) {
	if s.gone == nil {
		return
	}
	_ = s.process.Process.Signal(how) // an error says that it is gone already
	select {
	case <-s.gone:
	case <-time.After(longestWait):
		_ = s.process.Process.Kill()
		<-s.gone
	}
	s.gone = nil
}

// Standby starts a server that has a copy of this server's data, and follows it. This server must have been started
// with settings that allow it.
func (s *Server) Standby(name string, settings ...string) *Server {
	s.t.Helper()
	standby := newServer(s.t, append(s.settings[len(quick):len(s.settings):len(s.settings)], settings...))
	standby.must("pg_basebackup", "-D", standby.data(), "-d", s.URL()+"&application_name="+name, "-R", "-X", "stream", "-c", "fast", "--no-sync")
	standby.Restart()
	return standby
}

// Promote makes a standby the server that others write to.
func (s *Server) Promote() {
	s.t.Helper()
	s.must("pg_ctl", "promote", "-D", s.data(), "-w")
}
