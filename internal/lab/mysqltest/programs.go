package mysqltest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// programs are the programs of one installation.
type programs struct {
	server  string
	install string   // MariaDB's mariadb-install-db; MySQL has none
	also    []string // arguments that only this kind of server knows
}

// find returns the programs that tests use.
func find() (programs, error) {
	if server := os.Getenv("MYSQL_SERVER"); server != "" {
		path, err := exec.LookPath(server)
		if err != nil {
			return programs{}, fmt.Errorf("MYSQL_SERVER: %w", err)
		}
		if strings.HasPrefix(filepath.Base(path), "mysqld") {
			return programs{server: path, also: []string{"--mysqlx=OFF", "--secure-file-priv=NULL"}}, nil
		}

		return mariadb(path)
	}

	path, err := look("mariadbd")
	if err != nil {
		return programs{}, errMissing
	}

	return mariadb(path)
}

var errMissing = errors.New("no mariadbd and mariadb-install-db: run `make mariadb`, or install MariaDB's server (apt-get install " +
	"mariadb-server-core mariadb-client-core, brew install mariadb, apk add mariadb), or name a server in MYSQL_SERVER")

func mariadb(server string) (programs, error) {
	install, err := look("mariadb-install-db")
	if err != nil {
		return programs{}, errMissing
	}
	return programs{server: server, install: install, also: []string{"--skip-name-resolve"}}, nil
}

// look is exec.LookPath, which looks where Debian and Fedora have servers as well.
func look(name string) (string, error) {
	path, err := exec.LookPath(name)
	for _, dir := range []string{"/usr/sbin", "/usr/libexec"} {
		if err != nil {
			path, err = exec.LookPath(filepath.Join(dir, name))
		}
	}
	return path, err
}

// initialize returns the command that makes the files of a server.
func (p programs) initialize(data string) *exec.Cmd {
	if p.install == "" {
		return exec.Command(p.server, "--no-defaults", "--initialize-insecure", "--datadir="+data)
	}
	return exec.Command(p.install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db",
		"--skip-name-resolve", "--innodb-log-file-size=8M")
}
