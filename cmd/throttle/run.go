//go:build linux || darwin

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/cmd/throttle/internal/rendezvous"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/servers/proxy"
	"github.com/fleetthrottle/throttle/store"
)

// defaultRunWait is shorter than the five minutes after which Node's fetch gives up.
const defaultRunWait = 4 * time.Minute

// The roles of the processes of a rendezvous, in the hidden flag --role.
const (
	roleStarter   = "starter"
	roleKeeper    = "keeper"
	roleSuccessor = "successor" // a keeper that follows a killed keeper
	roleWorker    = "worker"
)

// A runner has the flags of run.
type runner struct {
	at      server
	file    string
	limits  []string
	maxWait time.Duration
	private []string
	own     []throttle.Policy // the rows of limits
	talk    io.Writer

	// Of the processes that serve the program.
	role, dir string   // hidden flags; dir is the directory of the rendezvous
	member    int      // hidden flag: the number of the program's process
	flags     []string // arguments for further processes
}

// newRun returns the command run, which runs a program whose calls wait for their limits.
func newRun() *cobra.Command {
	r := &runner{}
	c := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a program whose calls of APIs wait for their limits",
		Long: "Run a program with the base URLs of known APIs in its environment, so that its calls wait until the limits\n" +
			"of the APIs have room. All programs that this user runs in this way share the limits, one line and one page:\n" +
			"throttle dashboard finds it. The first program starts the proxy, and the last one ends it. Nothing is configured:\n" +
			"the presets know the limits, and answers of the APIs tell what they do not know. Calls of an API that no variable\n" +
			"leads through the proxy go to $THROTTLE_URL/api.example.com/path in place of https://api.example.com/path.\n" +
			"With --redis all machines share the limits.",
		Example: `  throttle run -- python agent.py
  throttle run --limit api.openai.com/=500/min -- claude
  throttle run --limit api.example.com/=20/s -- sh -c "curl $THROTTLE_URL/api.example.com/v1/orders"
  throttle run --redis redis://127.0.0.1:6379 -- ./nightly.sh`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && r.role == "" {
				return &exit{exitRun, errors.New("there is no program to run: throttle run -- COMMAND [ARGUMENT...]")}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			r.talk = c.ErrOrStderr()
			err := r.run(c, args)

			var known *exit
			if err == nil || errors.As(err, &known) {
				return err
			}

			return &exit{exitRun, err}
		},
	}

	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exit{exitRun, err} })
	r.at.addFlags(c)
	f := c.Flags()
	f.SetInterspersed(false) // flags behind the program are the program's
	_ = f.MarkHidden("timeout")
	f.StringArrayVar(&r.limits, "limit", nil, "limit of an API, such as api.example.com/=20/s; may be repeated. A preset of the API holds, too")
	f.StringVar(&r.file, "file", "", "file of policies, in force beside the presets. A preset that the file names replaces the preset of that name")
	f.DurationVar(&r.maxWait, "max-wait", defaultRunWait, "maximum time that a call is held")
	f.StringSliceVar(&r.private, "private", nil, "host of a limit, without a port, that may have a private address")

	f.StringVar(&r.role, "role", "", "")
	f.StringVar(&r.dir, "dir", "", "")
	f.IntVar(&r.member, "member", 0, "")

	for _, name := range []string{"role", "dir", "member"} {
		_ = f.MarkHidden(name)
	}

	return c
}

// run plays the role of this process. Without a role the process becomes the program, whose arguments are args.
func (r *runner) run(c *cobra.Command, args []string) error {
	if err := r.read(c.Flags()); err != nil {
		return err
	}

	switch r.role {
	case "":
		return r.become(args)
	case roleStarter:
		return rendezvous.Spawn(r.process(roleKeeper))
	case roleKeeper, roleSuccessor:
		return rendezvous.Keep(r.process(roleWorker), r.member, r.role == roleSuccessor)
	case roleWorker:
		return rendezvous.Work(r.process(roleSuccessor), func(d rendezvous.Duty) error { return r.work(c.Context(), d) })
	}

	return fmt.Errorf("--role: there is no role %q", r.role)
}

// read checks the flags and reports all mistakes at once. It sets the rows of --limit and the flags for further processes, and
// makes paths in flags absolute.
func (r *runner) read(f *pflag.FlagSet) error {
	var mistakes []error
	if r.maxWait <= 0 {
		mistakes = append(mistakes, errors.New("--max-wait: use more than 0"))
	}

	for _, text := range r.limits {
		p, err := limitOf(text)
		if err != nil {
			mistakes = append(mistakes, err)
			continue
		}

		// The name of the row is its pattern. Two machines may pass their limits in different orders, so numbers
		// would not tell two rows of one pattern apart.
		if slices.ContainsFunc(r.own, func(own throttle.Policy) bool { return own.Name == p.Name }) {
			mistakes = append(mistakes, fmt.Errorf("--limit %s: %s has a limit already; give a pattern several limits as rows of a --file", text, p.Name))
			continue
		}

		r.own = append(r.own, p)
	}

	// Further processes may have a different working directory.
	for _, name := range []string{"file", "tls-ca", "tls-cert", "tls-key"} {
		if path := f.Lookup(name).Value.String(); path != "" {
			absolute, err := filepath.Abs(path)
			mistakes = append(mistakes, err, f.Set(name, absolute)) // Join ignores nil
		}
	}

	f.Visit(func(flag *pflag.Flag) {
		// process sets all hidden flags but --timeout, and puts the address of Redis into the environment: as an argument it
		// would stand in the process list, with its password. --json has no effect on processes that print no result.
		isSetByProcess := flag.Hidden && flag.Name != "timeout" || flag.Name == "redis"
		if isSetByProcess || flag.Name == "json" {
			return
		}

		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}

		for _, v := range values {
			r.flags = append(r.flags, "--"+flag.Name+"="+v)
		}
	})

	return errors.Join(mistakes...)
}

// limitOf parses a --limit, PATTERN=LIMIT. A pattern without a slash is a host, and gets all its paths. The policy is named
// after its pattern.
func limitOf(text string) (throttle.Policy, error) {
	end := max(0, strings.LastIndexByte(text, '='))
	pattern, limit := text[:end], strings.TrimPrefix(text[end:], "=")
	if pattern == "" {
		return throttle.Policy{}, fmt.Errorf("--limit %s: use HOST/PATH=LIMIT, such as api.example.com/=20/s", text)
	}
	if !strings.Contains(pattern, "/") {
		pattern += "/"
	}

	l, err := throttle.ParseLimit(limit)
	if err != nil {
		return throttle.Policy{}, fmt.Errorf("--limit %s: %w", text, err)
	}

	return throttle.Policy{Name: pattern, Match: pattern, Limit: l}, nil
}

// become executes the program as a member of the rendezvous, and returns only if that fails. The process stays the
// same, so the program's input, output, signals, jobs and exit status are as without throttle.
func (r *runner) become(args []string) error {
	// From now on signals do what they do to the program: an interrupt ends the process, or is ignored.
	signal.Reset()

	path, err := exec.LookPath(args[0])
	switch {
	case errors.Is(err, exec.ErrDot):
		return &exit{exitNoProgram, fmt.Errorf("%s is found through a relative directory in PATH: name it as ./%s", args[0], args[0])}
	case errors.Is(err, os.ErrPermission):
		return &exit{exitNoProgram, fmt.Errorf("%s cannot be executed: %w", args[0], errors.Unwrap(err))}
	case err != nil:
		return &exit{exitNotFound, fmt.Errorf("there is no program %s", args[0])}
	}

	// Report mistakes in the file and in --limit here, not in a worker. The presets alone have no mistakes, so without both
	// the table is made only if a variable leads to an unusual host: that takes longer than all other steps.
	table := sync.OnceValues(r.table)
	if r.file != "" || len(r.own) > 0 {
		if _, err := table(); err != nil {
			return err
		}
	}

	named := func(host string) bool {
		if r.file == "" && isUsual(host) {
			return true
		}
		t, err := table()
		return err == nil && t.Has(host)
	}

	if r.dir, err = r.directory(); err != nil {
		return err
	}

	r.member = os.Getpid() // Exec keeps the number
	address, err := rendezvous.Join(r.dir, func() rendezvous.Command { return r.process(roleStarter) })
	if err != nil {
		return err
	}

	e := environment{url: "http://" + address, named: named, tell: func(line string) { fmt.Fprintln(r.talk, "throttle: "+clean(line)) }}
	variables := e.of(os.Environ())
	err = syscall.Exec(path, args, variables)

	// The shell runs a script whose first line names no interpreter.
	if err == syscall.ENOEXEC {
		err = syscall.Exec("/bin/sh", append([]string{"sh", path}, args[1:]...), variables)
	}

	return &exit{exitNoProgram, fmt.Errorf("%s cannot be executed: %w", args[0], err)}
}

// table returns the table of the policies in force, or the mistakes in them.
func (r *runner) table() (*proxy.Table, error) {
	f, err := r.load()
	if err != nil {
		return nil, err
	}
	policies := r.policies(f)
	if _, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: policies}); err != nil {
		return nil, err
	}
	return proxy.NewTable(policies, f.Tunnels...), nil
}

// noFile is the text of a file without rows.
const noFile = "version: 1\n"

// load returns the file of the user or, without --file, a file without rows.
func (r *runner) load() (*policyfile.File, error) {
	if r.file == "" {
		return policyfile.Parse("no file", []byte(noFile))
	}
	return policyfile.Load(r.file)
}

// runPresets returns the presets that are on without a file. Preset any is for an API that nobody has described: its row for all
// hosts would stand beside the rows of every API, and the proxy reaches no host without a row of its own.
func runPresets() []string {
	return slices.DeleteFunc(policyfile.Presets(), func(name string) bool { return name == "any" })
}

// policies returns the rows in force for a file: the rows of the file, of --limit, and of the usual presets that the file
// does not name, except for rows whose name is taken.
func (r *runner) policies(f *policyfile.File) []throttle.Policy {
	rows := append(slices.Clone(f.Policies), r.own...)
	named := make(map[string]bool) // presets that the file names

	// The rows of its presets stand before the file's own.
	for _, p := range f.Policies[:len(f.Policies)-len(f.Own())] {
		named[presetOf(p)] = true
	}

	// taken reports whether a row of the file or of --limit has the name of p.
	taken := func(p throttle.Policy) bool {
		return slices.ContainsFunc(rows, func(own throttle.Policy) bool { return own.Name == p.Name })
	}

	// Only a file can name presets, so parse a file with all of them.
	all, err := policyfile.Parse("the presets", []byte(noFile+"presets: ["+strings.Join(runPresets(), ", ")+"]\n"))
	if err != nil {
		panic(err) // TestRunKnowsAllPresets
	}

	for _, p := range all.Policies {
		if !named[presetOf(p)] && !taken(p) {
			rows = append(rows, p)
		}
	}

	return rows
}

// presetOf returns the name of a row's preset: rows are named after their preset, as "openai-tokens".
func presetOf(p throttle.Policy) string {
	name, _, _ := strings.Cut(p.Name, "-")
	return name
}

// directory returns the directory of the rendezvous, and makes it if need be. Programs that are run with the same flags, and with
// the same variables that a proxy reads, have the same directory.
func (r *runner) directory() (string, error) {
	all, err := rendezvous.Directory()
	if err != nil {
		return "", err
	}

	text, err := json.Marshal([]any{r.flags, r.at.address, serving(os.Environ())})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return rendezvous.Private(filepath.Join(all, hex.EncodeToString(sum[:6])))
}

// serving returns the variables of an environment that a proxy reads, in order, with absolute paths.
func serving(environ []string) (some []string) {
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if name == addressVariable || name == store.OffVariable || slices.Contains(pathVariables, name) {
			some = append(some, placed(v))
		}
	}
	slices.Sort(some)
	return some
}

// pathVariables are the variables with paths that a proxy reads.
var pathVariables = []string{authorityVariable, certificateVariable, keyVariable, "SSL_CERT_FILE", "SSL_CERT_DIR"}

// placed returns a variable "NAME=value" with absolute paths if it is one of pathVariables, and otherwise as it is: further
// processes may have a different working directory.
func placed(v string) string {
	name, value, _ := strings.Cut(v, "=")
	if value == "" || !slices.Contains(pathVariables, name) {
		return v
	}

	paths := []string{value}
	if name == "SSL_CERT_DIR" {
		paths = filepath.SplitList(value)
	}

	// Abs fails without a working directory. Then the path stays relative, and the process that opens the file reports an error.
	// An empty path in a list means no directory. Abs would make it the working directory.
	for i, path := range paths {
		if absolute, err := filepath.Abs(path); path != "" && err == nil {
			paths[i] = absolute
		}
	}
	return name + "=" + strings.Join(paths, string(filepath.ListSeparator))
}

// process returns the command of a process that serves the program in a role. The process gets only the variables that it
// needs: further variables of the program may be keys of APIs.
func (r *runner) process(role string) rendezvous.Command {
	args := append([]string{"run", "--role=" + role, "--dir=" + r.dir, "--member=" + strconv.Itoa(r.member)}, r.flags...)
	var environ []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "THROTTLE_") || slices.Contains([]string{"HOME", "PATH", "TMPDIR", "TZ", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "GODEBUG", "GORACE", "GOCOVERDIR"}, name) {
			environ = append(environ, placed(v))
		}
	}

	// The address of --redis replaces the address in the variable: the last of two variables of one name holds.
	if r.at.address != "" {
		environ = append(environ, addressVariable+"="+r.at.address)
	}
	return rendezvous.Command{Dir: r.dir, Args: args, Env: environ}
}
