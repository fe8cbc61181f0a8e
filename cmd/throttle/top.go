package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/spf13/cobra"
)

// A top has the flags of top.
type top struct {
	server
	every          time.Duration
	budgets        int
	sort, filter   string
	once           bool
	record, replay string // files
	names          labels
}

// shortestInterval is the least --interval.
const shortestInterval = 200 * time.Millisecond

// newTop returns the command top, which shows a fleet live.
func newTop() *cobra.Command {
	var o top
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch a fleet and its budgets, live",
		Long: `Top repeats the output of status. In a terminal, keys sort, filter and scroll: press
? for a list. Without a terminal it prints plain lines. Top writes nothing to Redis.
A Redis user with read rights is enough.`,
		Example: `  throttle top
  throttle top --sort wait --filter shop
  throttle top --once --json`,
		Args: argumentCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}

	o.addFlags(c)
	f := c.Flags()
	f.DurationVar(&o.every, "interval", 2*time.Second, "time between two readings, or between two snapshots of a replay")
	f.IntVar(&o.budgets, "budgets", fleet.DefaultBudgets, "maximum number of budgets whose state is read, the most urgent first")
	f.StringVar(&o.sort, "sort", sorts[0], "order of the budgets: "+strings.Join(sorts, ", "))
	f.StringVar(&o.filter, "filter", "", "show only budgets and nodes that contain this text")
	f.BoolVar(&o.once, "once", false, "print one snapshot and exit")
	o.names.addFlag(f)
	f.StringVar(&o.record, "record", "", "append each snapshot to this file as a line of JSON")
	f.StringVar(&o.replay, "replay", "", "show the snapshots that --record wrote to this file")
	_ = c.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(sorts, cobra.ShellCompDirectiveNoFileComp))

	return c
}

// run checks the flags, and shows snapshots of the fleet, or of a recording with --replay, until the user quits or the recording
// ends. With --once it shows one. With --record it also writes the snapshots to a file.
func (o *top) run(c *cobra.Command) (failed error) {
	switch {
	case !slices.Contains(sorts, o.sort):
		return fmt.Errorf("--sort: %q is none of %s", o.sort, strings.Join(sorts, ", "))
	case o.every < shortestInterval:
		return fmt.Errorf("--interval: the least is %v", shortestInterval)
	case o.record != "" && o.replay != "":
		return errors.New("--record and --replay do not go together")
	}

	if err := o.names.read(); err != nil {
		return err
	}

	if o.replay != "" {
		recorded, err := openRecording(o.replay, &o.names)
		if err != nil {
			return err
		}

		defer recorded.file.Close()
		defer recorded.warn(c.ErrOrStderr())
		return o.show(c, nil, recorded)
	}

	all, closeAll, err := o.connectFleet(c.Context())
	if err != nil {
		return err
	}
	defer closeAll()

	live := source(func(ctx context.Context) (s *fleet.Snapshot, err error) {
		err = o.withTimeout(ctx, func(ctx context.Context) error {
			s, err = all.Snapshot(ctx, o.budgets)
			return err
		})
		return s, err
	})

	if o.record != "" {
		recorder, closeFile, err := live.record(o.record)
		if err != nil {
			return err
		}

		// A failure of the disk may show only when the file is closed.
		defer func() { failed = errors.Join(failed, closeFile()) }()

		live = recorder
	}

	return o.show(c, o.names.labelled(live), nil)
}

// show shows a live fleet, or a recording if live is nil. In a terminal it serves keys until the user quits. Otherwise, and with
// --once or --json, it prints plain output.
func (o *top) show(c *cobra.Command, live source, recorded *recording) error {
	// Keys and colours need a terminal on both sides.
	hasKeys := isTerminal(c.OutOrStdout()) && isTerminal(c.InOrStdin()) && !o.once && !asJSON(c)
	if !hasKeys {
		switch {
		case live != nil:
			return o.plain(c, live)
		case o.once:
			return o.plain(c, recorded.last)
		}
		return o.plain(c, recorded.next)
	}

	// Keys move in both directions, which needs the places of all snapshots.
	if recorded != nil {
		if err := recorded.readAll(c.Context()); err != nil {
			return err
		}
	}

	_, err := tea.NewProgram(newModel(c.Context(), o.every, o.sort, o.filter, live, recorded), tea.WithContext(c.Context()),
		tea.WithInput(c.InOrStdin()), tea.WithOutput(c.OutOrStdout())).Run()
	if errors.Is(err, tea.ErrInterrupted) {
		return nil
	}

	return err
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}

// plain prints the snapshots of a source until it ends: of a live fleet one per interval, of a recording all at once. With
// --once it prints one. A failed reading is printed, and the next one follows, except for the first reading and after an
// interrupt: then plain returns the error.
func (o *top) plain(c *cobra.Command, from source) error {
	tick := time.NewTicker(o.every)
	defer tick.Stop()

	for n := 0; ; n++ {
		s, err := from(c.Context())

		// A failure of the first reading is a mistake such as a wrong address. A later failure may pass, unless it is a failure of a
		// recording.
		isFinal := n == 0 || o.once || o.replay != "" || c.Context().Err() != nil
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && isFinal:
			return err
		case err != nil:
			fmt.Fprintln(c.ErrOrStderr(), "throttle: "+clean(err.Error()))
		default:
			if err := o.print(c, s, n); err != nil {
				return err
			}
		}

		if o.once {
			return nil
		}
		if o.replay != "" {
			continue
		}

		select {
		case <-tick.C:
		case <-c.Context().Done():
			return c.Context().Err()
		}
	}
}

// print sorts and filters s, which is the n-th snapshot, counted from 0, and prints it: with --json as a line of JSON, with --json
// and --once as indented JSON, and otherwise as text. An empty line goes before each text but the first.
func (o *top) print(c *cobra.Command, s *fleet.Snapshot, n int) error {
	// Keep the whole snapshot, because the verdict is about the whole fleet.
	all := *s
	sortAndFilter(s, o.sort, o.filter)

	out := c.OutOrStdout()
	switch {
	case asJSON(c) && !o.once:
		return jsonLines(out).Encode(s)
	case asJSON(c):
		_, err := printJSON(c, s)
		return err
	}

	if n > 0 {
		fmt.Fprintln(out)
	}

	fmt.Fprintln(out, s.At.UTC().Format(time.RFC3339))
	return newView(s, o.filter, &all).write(out)
}

// A model is top in a terminal.
type model struct {
	ctx       context.Context
	every     time.Duration
	live      source     // nil for a recording
	recording *recording // read to its end
	at        int        // index in the recording

	shown  *fleet.Snapshot // the latest snapshot, nil before the first
	err    error           // why the latest reading failed
	frozen bool            // neither reading nor playing
	sort   string
	filter string
	typing bool // editing the filter
	help   bool

	width, height int // of the terminal
	skip          int // lines of the body that are scrolled past
}

// Messages of a model.
type (
	readMsg struct {
		shown *fleet.Snapshot
		err   error
	}
	tickMsg struct{}
)

// newModel returns a model that reads live, or replays recorded if live is nil. every is the time between snapshots. A replay
// shows its first snapshot.
func newModel(ctx context.Context, every time.Duration, sort, filter string, live source, recorded *recording) *model {
	m := &model{ctx: ctx, every: every, live: live, recording: recorded, sort: sort, filter: filter, width: 80, height: 24}
	m.step(0)
	return m
}

// Init implements [tea.Model].
func (m *model) Init() tea.Cmd {
	if m.live == nil {
		return m.tick()
	}
	return m.read
}

// read reads the next snapshot.
func (m *model) read() tea.Msg {
	s, err := m.live(m.ctx)
	return readMsg{s, err}
}

// tick sends a tickMsg when the next snapshot is due.
func (m *model) tick() tea.Cmd {
	return tea.Tick(m.every, func(time.Time) tea.Msg { return tickMsg{} })
}

// Update implements [tea.Model]. Each snapshot sets the timer for the next one, so that readings never overlap.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case readMsg:
		// After a failure the last snapshot stays on the screen, below the error.
		m.err = msg.err
		if msg.err == nil {
			m.shown = msg.shown
		}
		return m, m.tick()

	case tickMsg:
		switch {
		case m.frozen:
		case m.live != nil:
			return m, m.read
		default:
			m.step(1)
		}

		return m, m.tick()

	case tea.KeyPressMsg:
		// While the operator types a filter, letters are text and not commands.
		if m.typing {
			m.typeKey(msg)
			return m, nil
		}
		return m, m.key(msg.String())
	}

	return m, nil
}

// stop stops a replay, so that the next tick does not move on, and then moves as step does. It does nothing for a live fleet.
func (m *model) stop(by int) {
	if m.live == nil {
		m.frozen = true
		m.step(by)
	}
}

// step moves by snapshots in the recording, at most to its ends, and shows the snapshot there. It does nothing for a live fleet.
func (m *model) step(by int) {
	if m.live == nil {
		m.at = max(0, min(m.at+by, len(m.recording.places)-1))
		m.shown, m.err = m.recording.at(m.at)
	}
}

// typeKey edits the filter by a key, and scrolls to the top of the new list.
func (m *model) typeKey(msg tea.KeyPressMsg) {
	switch msg.String() {
	case "enter":
		m.typing = false
	case "esc", "ctrl+c":
		m.typing, m.filter = false, ""
	case "backspace":
		// A character may have several bytes.
		if all := []rune(m.filter); len(all) > 0 {
			m.filter = string(all[:len(all)-1])
		}

	default:
		m.filter += msg.Text
	}

	m.skip = 0
}

// key acts on a key of helpText, and returns [tea.Quit] if the key ends top, otherwise nil.
func (m *model) key(key string) tea.Cmd {
	switch key {
	case "q", "ctrl+c":
		return tea.Quit
	case "s":
		m.sort = sorts[(slices.Index(sorts, m.sort)+1)%len(sorts)]
	case "/":
		m.typing, m.filter = true, ""
	case "esc":
		m.filter, m.help = "", false
	case "space", " ":
		m.frozen = !m.frozen
	case "?":
		m.help = !m.help
	case "down", "j":
		m.skip++ // lines bounds it
	case "up", "k":
		m.skip = max(0, m.skip-1)
	case "pgdown":
		m.skip += max(1, m.height/2)
	case "pgup":
		m.skip = max(0, m.skip-m.height/2)
	case "home", "g":
		m.skip = 0

	case "left", "h":
		m.stop(-1)
	case "right", "l":
		m.stop(1)
	}

	return nil
}

const helpText = `q       end
s       sort by the next of: %s
/       filter: type a text, enter; esc takes it away
space   stop, and go on
up down pgup pgdown home   scroll
left right   a step in a recording
?       this list`

// Styles of lines. The terminal's profile and NO_COLOR may reduce them.
const (
	bold  = "\x1b[1m"
	red   = "\x1b[31m"
	plain = "\x1b[m"
)

// View implements [tea.Model].
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen, v.WindowTitle = true, "throttle top"
	return v
}

// lines returns the lines of the screen: the title, an error, and as much of the body as there is room for, from skip on. It
// bounds skip by the length of the body.
func (m *model) lines() []string {
	head := []string{bold + m.title() + plain}
	if m.err != nil {
		head = append(head, red+fleet.Clean(m.err.Error(), 1000)+plain)
	}

	body := []string{"reading …"}
	switch {
	case m.help:
		body = strings.Split(fmt.Sprintf(helpText, strings.Join(sorts, ", ")), "\n")
	case m.shown != nil:
		body = m.tables()
	}

	// However small the terminal is, show a line and a column. The body may have become shorter since the last key.
	room := max(1, m.height-len(head))
	m.skip = max(0, min(m.skip, len(body)-room))
	body = body[m.skip:min(len(body), m.skip+room)]
	all := append(head, body...)
	for i, line := range all {
		all[i] = ansi.Truncate(line, max(1, m.width), "…")
	}

	return all
}

// title returns the title line.
func (m *model) title() string {
	words := []string{"throttle top"}
	if m.shown != nil {
		words = append(words, m.shown.At.UTC().Format("2006-01-02 15:04:05"))
	}
	if m.live == nil {
		words = append(words, fmt.Sprintf("recording %d of %d", m.at+1, len(m.recording.places)))
	}
	if m.frozen {
		words = append(words, "stopped")
	}

	words = append(words, "by "+m.sort)
	switch {
	case m.typing:
		words = append(words, "filter: "+fleet.Clean(m.filter, 100)+"_")
	case m.filter != "":
		words = append(words, "filter: "+fleet.Clean(m.filter, 100))
	}

	return strings.Join(append(words, "? for help"), "  ")
}

// tables returns the lines of the view: the head, the budgets, their shares, the nodes, and the foot.
func (m *model) tables() (lines []string) {
	s := *m.shown // m.shown stays whole
	sortAndFilter(&s, m.sort, m.filter)

	v := newView(&s, m.filter, m.shown)
	for _, line := range v.head {
		lines = append(lines, fleet.Clean(line, 1000))
	}

	lines = append(lines, styled(&v.budgets, func(row int) bool { return v.closed[row] })...)
	if len(v.shares.rows) > 0 {
		lines = append(append(lines, ""), styled(&v.shares, func(int) bool { return false })...)
	}

	troubled := func(row int) bool { return s.Nodes[row].Silent || s.Nodes[row].File.Err != "" }
	lines = append(append(lines, ""), styled(&v.nodes, troubled)...)
	return append(lines, v.foot...)
}

// styled returns the lines of a table, with the titles bold, and the rows red for which isRed is true.
func styled(t *table, isRed func(row int) bool) []string {
	lines := t.lines()
	for i, line := range lines {
		switch {
		case i == 0:
			lines[i] = bold + line + plain
		case isRed(i - 1):
			lines[i] = red + line + plain
		}
	}
	return lines
}

// A source returns one snapshot per call, and io.EOF at the end.
type source func(ctx context.Context) (*fleet.Snapshot, error)

// record returns a source that also appends each snapshot to a file, as one line, and a function that closes the file.
// A snapshot that cannot be written is an error. The next snapshot is written all the same.
func (s source) record(path string) (source, func() error, error) {
	cut := isCut(path)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}

	return func(ctx context.Context) (*fleet.Snapshot, error) {
		snap, err := s(ctx)
		if err != nil {
			return snap, err
		}

		// A crash or a full disk may have cut the last line. End it, or this snapshot would be lost, too.
		if cut {
			if _, err := f.WriteString("\n"); err != nil {
				return snap, err
			}
			cut = false
		}

		// An encoder that has failed writes nothing more, so each snapshot has its own.
		if err = jsonLines(f).Encode(snap); err != nil {
			cut = isCut(path)
		}
		return snap, err
	}, f.Close, nil
}

// isCut reports whether the last line of a file has no end, as after a crash. It is false for a file that is missing, empty,
// irregular or unreadable.
func isCut(path string) bool {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}

	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()

	last := make([]byte, 1)

	_, err = f.Seek(-1, io.SeekEnd)
	if err == nil {
		_, err = f.Read(last)
	}

	return err == nil && last[0] != '\n'
}

// longestLine bounds a snapshot in a recording.
const longestLine = 64 << 20

// A recording is a file from top --record. Only one snapshot is in memory at a time.
type recording struct {
	path   string
	file   *os.File
	lines  *bufio.Scanner
	line   int     // number of lines read so far
	end    int64   // end offset of the lines read so far
	places []place // of the snapshots in these lines
	broken int     // number of lines without a valid snapshot
	first  int     // number of the first such line
	names  *labels // labels of the budgets, which recordings lack
}

// A place is the position of a snapshot in a recording.
type place struct {
	at     int64
	length int
}

// openRecording opens a recording, and reads nothing yet.
func openRecording(path string, names *labels) (*recording, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r := &recording{path: path, file: f, lines: bufio.NewScanner(f), names: names}
	r.lines.Buffer(nil, longestLine)
	r.lines.Split(wholeLines)
	return r, nil
}

// wholeLines implements [bufio.SplitFunc]: lines with their ends.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	end := bytes.IndexByte(data, '\n') + 1

	// The last line may have no end.
	if end == 0 && atEOF {
		end = len(data)
	}
	if end == 0 {
		return 0, nil, nil
	}
	return end, data[:end], nil
}

// next is a [source] of the recorded snapshots, whose places it notes. It counts and skips invalid lines, such as a
// line that a crash has cut. A recording without a valid line is an error.
func (r *recording) next(ctx context.Context) (*fleet.Snapshot, error) {
	for ctx.Err() == nil && r.lines.Scan() {
		text := r.lines.Bytes()
		r.line++
		r.end += int64(len(text))

		if s, ok := r.snapshot(text); ok {
			r.places = append(r.places, place{r.end - int64(len(text)), len(text)})
			return s, nil
		}

		// An error names the first broken line.
		r.broken++
		if r.broken == 1 {
			r.first = r.line
		}
	}

	switch err := cmp.Or(ctx.Err(), r.lines.Err()); {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", r.path, err)
	case len(r.places) > 0:
		return nil, io.EOF
	case r.broken > 0:
		return nil, fmt.Errorf("%s:%d: it is not a snapshot as top --record writes it", r.path, r.first)
	}

	return nil, errors.New(r.path + ": it has no snapshot")
}

// snapshot parses a line.
func (r *recording) snapshot(text []byte) (*fleet.Snapshot, bool) {
	s := new(fleet.Snapshot)
	err := json.Unmarshal(text, s)
	r.names.set(s)
	return s, err == nil && s.Version == outputVersion
}

// readAll reads to the end, so that [recording.at] knows all places.
func (r *recording) readAll(ctx context.Context) error {
	for {
		if _, err := r.next(ctx); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// last is a [source] of the last snapshot.
func (r *recording) last(ctx context.Context) (s *fleet.Snapshot, err error) {
	for {
		next, err := r.next(ctx)
		if err == io.EOF && s != nil {
			return s, nil
		} else if err != nil {
			return nil, err
		}
		s = next
	}
}

// at returns the i-th snapshot read, counted from 0. It returns an error if the file has changed.
func (r *recording) at(i int) (*fleet.Snapshot, error) {
	text := make([]byte, r.places[i].length)
	if _, err := r.file.ReadAt(text, r.places[i].at); err != nil {
		return nil, err
	}
	s, ok := r.snapshot(text)
	if !ok {
		return nil, fmt.Errorf("%s: it has changed", r.path)
	}
	return s, nil
}

// warn prints how many lines were invalid.
func (r *recording) warn(talk io.Writer) {
	if r.broken > 0 {
		fmt.Fprintf(talk, "%s: %s could not be read, the first is line %d\n", r.path, stat.Count(r.broken, "line", "lines"), r.first)
	}
}
