package rendezvous

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// bornOf returns when a process was started, in ticks of the clock since the boot.
func bornOf(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}

	// The second field is the name of the program in brackets, which may hold spaces and brackets.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const born = 22 - 3 // the 22nd field: the third is fields[0]
	if len(fields) <= born {
		return "", fmt.Errorf("/proc/%d/stat has no time", pid)
	}
	return string(fields[born]), nil
}

// awaitNotice returns nil when the kernel tells that the process has ended, or an error if the kernel cannot tell: Linux
// before 5.3, a sandbox, no free descriptor.
func awaitNotice(p process) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err == syscall.ESRCH {
		return nil
	}
	if err != nil {
		return err
	}

	defer unix.Close(fd)

	// A later process may have the number by now.
	for p.lives() {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if err != unix.EINTR {
			return err
		}
	}
	return nil
}

// Own returns a listener that closes the connections of other users of this machine: their processes can reach the
// loopback, and could use up the limits. If the system does not say whose a connection is, Own tells so, and returns l.
func Own(l net.Listener, tell func(line string)) net.Listener {
	// Try whether the system says that a connection of this process is this user's.
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		tell("other users of this machine can use the proxy: " + err.Error())
		return l
	}
	defer conn.Close()

	if !isOwn(conn.LocalAddr(), conn.RemoteAddr()) {
		tell("other users of this machine can use the proxy: /proc/net/tcp does not tell whose a connection is")
		return l
	}
	return own{l}
}

// An own is a listener for connections of this user.
type own struct{ net.Listener }

// Accept implements [net.Listener].
func (l own) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || isOwn(conn.RemoteAddr(), conn.LocalAddr()) {
			return conn, err
		}
		conn.Close()
	}
}

// looksForOwner is how often the tables are read: the kernel may leave out a socket while others come and go.
const looksForOwner = 3

// isOwn reports whether the socket with a local and a remote address is found, and belongs to a process of this user, or
// of the superuser.
func isOwn(local, remote net.Addr) bool {
	for range looksForOwner {
		if uid, found := ownerOf(local, remote); found {
			return uid == os.Geteuid() || uid == 0
		}
	}
	return false
}

// ownerOf returns the user of the socket with a local and a remote address. found is false if no table has it.
func ownerOf(local, remote net.Addr) (uid int, found bool) {
	for _, table := range []struct {
		path   string
		mapped bool // IPv4 addresses stand in the form of IPv6
	}{{"/proc/net/tcp", false}, {"/proc/net/tcp6", true}} {
		if uid, found := ownerIn(table.path, entry(local, table.mapped), entry(remote, table.mapped)); found {
			return uid, true
		}
	}
	return 0, false
}

// ownerIn returns the user of a socket in the table of the kernel at path. local and remote are as entry returns them. found is
// false for a socket that is not in the table, or that its process has closed, and for a table that cannot be read.
func ownerIn(path, local, remote string) (uid int, found bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}

	defer f.Close()

	for lines := bufio.NewScanner(f); lines.Scan(); {
		// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode …
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[1] != local || fields[2] != remote {
			continue
		}

		// A socket that its process has closed has the inode 0.
		uid, err := strconv.Atoi(fields[7])
		return uid, err == nil && fields[9] != "0"
	}

	return 0, false
}

// entry returns an address in the form of the tables: words of four bytes in the machine's byte order, as hexadecimal digits, then
// the port. mapped says that the table has IPv4 addresses in the form of IPv6. An address of a different network is "".
func entry(a net.Addr, mapped bool) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return ""
	}

	ip := at.Addr().Unmap().AsSlice()

	// The table of IPv6 has an IPv4 address in the form ::ffff:a.b.c.d, which As16 returns.
	if mapped {
		whole := at.Addr().As16()
		ip = whole[:]
	}

	for i := 0; i+4 <= len(ip); i += 4 {
		binary.NativeEndian.PutUint32(ip[i:], binary.BigEndian.Uint32(ip[i:]))
	}

	return fmt.Sprintf("%s:%04X", strings.ToUpper(hex.EncodeToString(ip)), at.Port())
}
