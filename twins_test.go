package throttle_test

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

var updateTwins = flag.Bool("update-twins", false, "note that all Chinese sections say what their English ones say")

// A section of a Chinese page names the English text that it follows, with hashes of
// both as they were when somebody compared them:
//
//	<!-- follows docs/guide.md#choosing-a-limit en=0123456789ab zh=0123456789ab -->
//
// The text is a section of a page, or the package comment of a Go file.
var follows = regexp.MustCompile(`<!-- follows (\S+?)(?: en=([0-9a-f]*) zh=([0-9a-f]*))? -->`)

// TestChinesePagesFollow: no English section has changed without its Chinese twin, nor
// the other way round. Compare the two, and then say so: make twins.
func TestChinesePagesFollow(t *testing.T) {
	files := repositoryFiles(t)
	followed := map[string]bool{}
	for _, page := range files {
		if !chinese(page) {
			continue
		}
		text := read(t, page)
		updated := text
		for _, s := range sections(text) {
			marks := follows.FindAllStringSubmatch(s.text, -1)
			if len(marks) == 0 {
				t.Errorf("%s: the section %q does not say which English text it follows", page, s.title)
			}
			zh := hash(follows.ReplaceAllString(s.text, ""))
			for _, m := range marks {
				followed[m[1]] = true
				en := hash(english(t, m[1]))
				if m[2] == en && m[3] == zh {
					continue
				}
				updated = strings.Replace(updated, m[0], fmt.Sprintf("<!-- follows %s en=%s zh=%s -->", m[1], en, zh), 1)
				if !*updateTwins {
					t.Errorf("%s: %q or %s has changed: compare them, then: make twins", page, s.title, m[1])
				}
			}
		}
		if *updateTwins && updated != text {
			require.NoError(t, os.WriteFile(page, []byte(updated), 0o644))
		}
	}
	for _, s := range sections(read(t, "README.md")) {
		if at := "README.md#" + slug(s.title); !followed[at] {
			t.Errorf("no Chinese section follows %s", at)
		}
	}
}

// TestSectionsAreFound: headings in code are none, and anchors are GitHub's.
func TestSectionsAreFound(t *testing.T) {
	found := sections("# A\na\n```sh\n# no heading\n```\n## Which limit? 限流\nb\n")
	require.Equal(t, []section{
		{"A", "# A\na\n```sh\n# no heading\n```\n"},
		{"Which limit? 限流", "## Which limit? 限流\nb\n"},
	}, found)
	require.Equal(t, "which-limit-限流", slug(found[1].title))
	require.Equal(t, "go-retryablehttp", slug("`go-retryablehttp`"))
}

func chinese(page string) bool {
	return page == "README.zh-CN.md" || strings.HasPrefix(page, "docs/zh/") && path.Ext(page) == ".md"
}

// A section of a page is a heading and what stands below it, up to the next heading.
type section struct{ title, text string }

func sections(page string) (all []section) {
	code := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		}
		if title := strings.TrimLeft(line, "#"); !code && title != line && strings.HasPrefix(title, " ") {
			all = append(all, section{title: strings.TrimSpace(title)})
		}
		if len(all) > 0 {
			all[len(all)-1].text += line
		}
	}
	return all
}

// slug is the anchor that GitHub gives a heading.
func slug(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}

// english returns the text that "README.md#quick-start" or "presets/wecom/wecom.go" names.
func english(t *testing.T, name string) string {
	t.Helper()
	file, anchor, _ := strings.Cut(name, "#")
	if path.Ext(file) == ".go" {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
		require.NoError(t, err)
		require.NotNil(t, parsed.Doc, "%s has no package comment", file)
		return parsed.Doc.Text()
	}
	for _, s := range sections(read(t, file)) {
		if slug(s.title) == anchor {
			return s.text
		}
	}
	require.Fail(t, "there is no "+name)
	return ""
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(squeeze(text)))
	return hex.EncodeToString(sum[:6])
}
