package clienthello

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errSeen = errors.New("seen")

// hello is the first message of a crypto/tls client.
func hello(t testing.TB, config *tls.Config) []byte {
	config.InsecureSkipVerify = true
	var sent bytes.Buffer
	err := tls.Client(recorder{&sent}, config).Handshake()
	require.ErrorIs(t, err, io.EOF)
	require.NotEmpty(t, sent.Bytes())
	return sent.Bytes()
}

// recorder is a connection that accepts all data and sends none.
type recorder struct{ *bytes.Buffer }

func (recorder) Read([]byte) (int, error)         { return 0, io.EOF }
func (recorder) Close() error                     { return nil }
func (recorder) LocalAddr() net.Addr              { return nil }
func (recorder) RemoteAddr() net.Addr             { return nil }
func (recorder) SetDeadline(time.Time) error      { return nil }
func (recorder) SetReadDeadline(time.Time) error  { return nil }
func (recorder) SetWriteDeadline(time.Time) error { return nil }

// inRecords cuts the records in data into others of size bytes.
func inRecords(data []byte, size int) []byte {
	var body, out []byte
	for len(data) > 0 {
		n := int(binary.BigEndian.Uint16(data[3:]))
		body = append(body, data[5:5+n]...)
		data = data[5+n:]
	}
	for part := range slices.Chunk(body, size) {
		out = append(out, 22, 3, 1, byte(len(part)>>8), byte(len(part)))
		out = append(out, part...)
	}
	return out
}

func manyProtocols() []string {
	var list []string
	for range 60 {
		list = append(list, strings.Repeat("p", 200))
	}
	return list
}

var clients = []struct {
	name   string
	config *tls.Config
}{
	{"defaults", &tls.Config{}},
	{"TLS 1.2", &tls.Config{MaxVersion: tls.VersionTLS12}},
	{"TLS 1.3 only", &tls.Config{MinVersion: tls.VersionTLS13}},
	{"a big key share", &tls.Config{CurvePreferences: []tls.CurveID{tls.X25519MLKEM768}}},
	{"a small key share", &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP256}}},
	{"many protocols", &tls.Config{NextProtos: manyProtocols()}},
}

func TestRealClients(t *testing.T) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			config := c.config.Clone()
			config.ServerName = "Www.Example.COM"
			sent := hello(t, config)
			readers := map[string]func(io.Reader) io.Reader{
				"at once":        func(r io.Reader) io.Reader { return r },
				"byte by byte":   iotest.OneByteReader,
				"data with EOF":  iotest.DataErrReader,
				"half the bytes": iotest.HalfReader,
			}
			for name, reader := range readers {
				got, read, err := Read(reader(bytes.NewReader(sent)))
				require.NoError(t, err, name)
				assert.Equal(t, "www.example.com", got, name)
				assert.Equal(t, sent, read, name)
			}
		})
	}
}

func TestRecordsOfAnySize(t *testing.T) {
	sent := hello(t, &tls.Config{ServerName: "a.example"})
	for _, size := range []int{1, 2, 3, 4, 5, 50, len(sent) - 6, len(sent) - 5} {
		cut := inRecords(sent, size)
		name, read, err := Read(iotest.OneByteReader(bytes.NewReader(cut)))
		require.NoError(t, err, size)
		assert.Equal(t, "a.example", name)
		assert.Equal(t, cut, read)
		assert.Equal(t, "a.example", seenByGo(cut))
	}
}

func TestTruncatedAtEveryByte(t *testing.T) {
	whole := hello(t, &tls.Config{ServerName: "a.example"})
	for _, sent := range [][]byte{whole, inRecords(whole, 7)} {
		for n := range sent {
			name, read, err := Read(bytes.NewReader(sent[:n]))
			want := io.ErrUnexpectedEOF
			if n == 0 {
				want = io.EOF
			}
			require.ErrorIs(t, err, want, n)
			assert.Empty(t, name)
			assert.Equal(t, sent[:n], append([]byte{}, read...))
		}
	}
}

func TestReadsNoByteTooMuch(t *testing.T) {
	sent := hello(t, &tls.Config{ServerName: "a.example"})
	r := bytes.NewReader(append(slices.Clone(sent), "early data"...))
	_, read, err := Read(r)
	require.NoError(t, err)
	assert.Equal(t, sent, read)
	rest, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "early data", string(rest))
}

// A client may leave as many hellos unfinished as it has connections.
func TestHalfHellosInMemory(t *testing.T) {
	half := record("\x01\x00\x3f\x00"+strings.Repeat("x", 8000)) + record(strings.Repeat("x", 8000))
	const hellos = 1000
	use := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc + m.StackInuse)
	}
	before := use()
	more, waiting := make(chan struct{}), make(chan struct{}, hellos)
	var all sync.WaitGroup
	for range hellos {
		all.Go(func() {
			_, _, err := Read(io.MultiReader(strings.NewReader(half), readerFunc(func([]byte) (int, error) {
				waiting <- struct{}{}
				<-more
				return 0, io.EOF
			})))
			assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
		})
	}
	for range hellos {
		<-waiting
	}
	assert.Less(t, use()-before, 50<<20)
	close(more)
	all.Wait()
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestReadErrorIsKept(t *testing.T) {
	sent := hello(t, &tls.Config{ServerName: "a.example"})
	_, read, err := Read(iotest.TimeoutReader(iotest.OneByteReader(bytes.NewReader(sent))))
	assert.ErrorIs(t, err, iotest.ErrTimeout)
	assert.Len(t, read, 1)
}

// extension makes an extension.
func extension(kind uint16, body string) string {
	return string(binary.BigEndian.AppendUint16(nil, kind)) + vector(2, body)
}

func vector(sizeLen int, body string) string {
	size := binary.BigEndian.AppendUint64(nil, uint64(len(body)))
	return string(size[8-sizeLen:]) + body
}

func sni(names ...string) string {
	list := ""
	for _, n := range names {
		list += "\x00" + vector(2, n)
	}
	return extension(0, vector(2, list))
}

// fixed is a hello up to its extensions.
func fixed() string {
	return "\x03\x03" + strings.Repeat("r", 32) + vector(1, "session") + vector(2, "\x13\x01\xc0\x2f") + vector(1, "\x00")
}

func message(body string) string { return "\x01" + vector(3, body) }

func record(body string) string { return "\x16\x03\x01" + vector(2, body) }

// with is the record of a hello with these extensions.
func with(extensions ...string) string {
	return record(message(fixed() + vector(2, strings.Join(extensions, ""))))
}

func TestHellosMadeByHand(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 49)+".", 5)
	groups := extension(10, vector(2, "\x00\x1d"))
	tests := []struct {
		name, sent string
		want       string // a name, or a part of the error
	}{
		{"one name", with(sni("a.example")), "a.example"},
		{"a name after others", with(groups, extension(0x1a1a, "x"), sni("a.example")), "a.example"},
		{"upper case", with(sni("A.eXample")), "a.example"},
		{"a trailing dot", with(sni("a.example.")), "a.example"},
		{"an underscore and hyphens", with(sni("-a_b-.example")), "-a_b-.example"},
		{"a label that begins with digits", with(sni("1.2.3.4a")), "1.2.3.4a"},
		{"253 bytes", with(sni(long + "aaa")), long + "aaa"},
		{"254 bytes", with(sni(long + "aaaa")), "which is no host name"},
		{"a label of 64", with(sni(strings.Repeat("a", 64) + ".example")), "which is no host name"},
		{"two trailing dots", with(sni("a.example..")), "which is no host name"},
		{"only a dot", with(sni(".")), "which is no host name"},
		{"an empty label", with(sni("a..example")), "which is no host name"},
		{"a NUL", with(sni("good.example\x00.evil.example")), "which is no host name"},
		{"a blank", with(sni("good.example ")), "which is no host name"},
		{"a port", with(sni("good.example:443")), "which is no host name"},
		{"a wildcard", with(sni("*.example")), "which is no host name"},
		{"the Kelvin sign, a lower-case k to Go", with(sni("\u212a.example")), "which is no host name"},
		{"not ASCII", with(sni("ü.example")), "which is no host name"},
		{"an IPv4 address", with(sni("10.0.0.1")), "which is no host name"},
		{"an IPv4 address as a number", with(sni("2130706433")), "which is no host name"},
		{"an IPv4 address in hexadecimal", with(sni("0X7f000001.")), "which is no host name"},
		{"an IPv6 address", with(sni("::1")), "which is no host name"},
		{"an IPv6 address in brackets", with(sni("[::1]")), "which is no host name"},
		{"no extensions at all", record(message(fixed())), ErrNoName.Error()},
		{"an empty list of extensions", with(), ErrNoName.Error()},
		{"other extensions only", with(groups), ErrNoName.Error()},
		{"two names", with(sni("good.example", "evil.example")), "not exactly one host name"},
		{"the same name twice", with(sni("a.example", "a.example")), "not exactly one host name"},
		{"no name in the list", with(sni()), "not exactly one host name"},
		{"an empty server_name", with(extension(0, "")), "not exactly one host name"},
		{"an empty name", with(sni("")), "which is no host name"},
		{"a name of another type", with(extension(0, vector(2, "\x01"+vector(2, "a.example")))), "not exactly one host name"},
		{"a name of another type first", with(extension(0, vector(2, "\x01"+vector(2, "x")+"\x00"+vector(2, "a.example")))), "not exactly one host name"},
		{"bytes after the name", with(extension(0, vector(2, "\x00"+vector(2, "a.example")+"x"))), "not exactly one host name"},
		{"bytes after the list", with(extension(0, vector(2, "\x00"+vector(2, "a.example"))+"x")), "not exactly one host name"},
		{"two server_name extensions", with(sni("good.example"), sni("evil.example")), "two extensions of type 0"},
		{"two others", with(groups, sni("a.example"), groups), "two extensions of type 10"},
		{"an extension cut off", with(sni("a.example"), "\x00\x0a\x00\x09x"), "an extension"},
		{"one byte of an extension", with(sni("a.example"), "\x00"), "an extension"},
		{"bytes after the extensions", record(message(fixed() + vector(2, sni("a.example")) + "x")), "its end"},
		{"one byte of extensions", record(message(fixed() + "\x00")), "its end"},
		{"an empty hello", record(message("")), "its fixed part"},
		{"no cipher suites", record(message("\x03\x03" + strings.Repeat("r", 32) + vector(1, "") + vector(2, "") + vector(1, "\x00"))), "its fixed part"},
		{"half a cipher suite", record(message("\x03\x03" + strings.Repeat("r", 32) + vector(1, "") + vector(2, "abc") + vector(1, "\x00"))), "its fixed part"},
		{"no compression methods", record(message("\x03\x03" + strings.Repeat("r", 32) + vector(1, "") + vector(2, "ab") + vector(1, ""))), "its fixed part"},
		{"a session of 33 bytes", record(message("\x03\x03" + strings.Repeat("r", 32) + vector(1, strings.Repeat("s", 33)) + vector(2, "ab") + vector(1, "\x00"))), "its fixed part"},
		{"version 4", record(message("\x04" + fixed()[1:])), "its fixed part"},
		{"two hellos in a record", record(message(fixed()+vector(2, sni("good.example"))) + message(fixed()+vector(2, sni("evil.example")))), "bytes follow the ClientHello"},
		{"another handshake message", record("\x02" + vector(3, "hello")), "type 2, not ClientHello"},
		{"HelloRequest before the hello", record("\x00\x00\x00\x00" + message(fixed())), "type 0, not ClientHello"},
		{"an empty record first", record("") + with(sni("a.example")), "a TLS record of 0 bytes"},
		{"an empty record between", record("\x01\x00") + record(""), "a TLS record of 0 bytes"},
		{"an alert between", record("\x01\x00") + "\x15\x03\x01\x00\x02\x01\x00", "a record that begins with 15"},
		{"another version between", record("\x01\x00") + "\x16\x02\x01\x00\x02\x01\x00", "a record that begins with 16 02"},
		{"a record that is too large", "\x16\x03\x01\x40\x01", "a TLS record of 16385 bytes"},
		{"a hello that is too large", record("\x01\x01\x00\x00"), "larger than 16384 bytes"},
		{"records that are too large together", record("\x01\x00\x3f\x00") + strings.Repeat(record("x"), 20000), "larger than 16384 bytes"},
		{"HTTP", "GET / HTTP/1.1\r\n", ErrNotTLS.Error()},
		{"one byte of HTTP", "G", ErrNotTLS.Error()},
		{"SSL 2.0", "\x80\x2e\x01\x00\x02", ErrNotTLS.Error()},
		{"another major version", "\x16\x02", ErrNotTLS.Error()},
		{"an alert", "\x15\x03\x01\x00\x02\x01\x00", ErrNotTLS.Error()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			name, read, err := Read(strings.NewReader(tt.sent))
			assert.LessOrEqual(t, len(read), maxRead)
			assert.True(t, strings.HasPrefix(tt.sent, string(read)))
			if err != nil {
				assert.Empty(t, name)
				assert.ErrorContains(t, err, tt.want)
				return
			}
			assert.Equal(t, tt.want, name)
		})
	}
}

// A client of another protocol that waits for an answer gets an error at once.
func TestNotTLSIsToldEarly(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	go client.Write([]byte("\x00"))
	_, read, err := Read(server)
	assert.Equal(t, ErrNotTLS, err)
	assert.Equal(t, []byte{0}, read)
}

func TestClientUnderstandsAlert(t *testing.T) {
	client, server := net.Pipe()
	go func() {
		if _, _, err := Read(server); err == nil {
			server.Write(Alert(112))
		}
	}()
	err := tls.Client(client, &tls.Config{ServerName: "a.example"}).Handshake()
	assert.EqualError(t, err, "remote error: tls: unrecognized name")
}

// seenByGo is the name that a server of crypto/tls reads, "-" if it refuses the
// hello, and "" if it takes one without a name.
func seenByGo(sent []byte) string {
	name := "-"
	conn := replay{recorder{new(bytes.Buffer)}, bytes.NewReader(sent)}
	_ = tls.Server(conn, &tls.Config{
		GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			name = info.ServerName
			return nil, errSeen
		},
	}).Handshake()
	return name
}

// replay is a connection from which r is read.
type replay struct {
	recorder
	r io.Reader
}

func (c replay) Read(b []byte) (int, error) { return c.r.Read(b) }

// FuzzRead: no name is accepted that crypto/tls reads differently, or does not read at
// all; if crypto/tls refuses a hello, any result is correct.
func FuzzRead(f *testing.F) {
	for _, c := range clients[:5] {
		config := c.config.Clone()
		config.ServerName = "a.example"
		sent := hello(f, config)
		f.Add(sent)
		f.Add(inRecords(sent, 100))
	}
	f.Add([]byte(with(sni("A.example."), extension(10, "x"))))
	f.Add([]byte(with(extension(0, vector(2, "\x01"+vector(2, "x")+"\x00"+vector(2, "a.example"))))))
	f.Add([]byte(with(sni("\u212a.example"))))
	f.Add([]byte(with()))
	f.Add([]byte(record("\x01") + record("\x00\x00")))
	f.Fuzz(func(t *testing.T, sent []byte) {
		name, read, err := Read(iotest.HalfReader(bytes.NewReader(sent)))
		require.True(t, bytes.HasPrefix(sent, read))
		require.LessOrEqual(t, len(read), maxRead)
		same, _, again := Read(iotest.OneByteReader(bytes.NewReader(sent)))
		require.Equal(t, name, same)
		require.Equal(t, err == nil, again == nil)
		if err != nil {
			require.Empty(t, name)
		}
		seen := seenByGo(sent)
		switch {
		case err == nil && seen != "-":
			require.Equal(t, asciiLower(seen), name)
		case errors.Is(err, ErrNoName) && seen != "-":
			require.Empty(t, seen)
		}
	})
}

func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
