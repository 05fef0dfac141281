package limits

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// compose makes a message in the given byte order: one that answers serial
// reply, or a signal with a member.
func compose(order binary.AppendByteOrder, kind byte, reply uint32, member, failed string, body ...any) []byte {
	b := &writer{order: order}
	b.any(map[bool]byte{true: 'B', false: 'l'}[order == binary.AppendByteOrder(binary.BigEndian)], kind, byte(1), byte(1))
	var rest writer
	rest.order = order
	rest.any(body...)
	b.any(uint32(len(rest.data)), uint32(7))
	var fields writer
	fields.order = order
	if reply != 0 {
		fields.pad(8)
		fields.any(byte(fieldReply), sig("u"), reply)
	}
	for code, text := range map[byte]string{fieldMember: member, fieldError: failed} {
		if text != "" {
			fields.pad(8)
			fields.any(code, sig("s"), text)
		}
	}
	fields.pad(8)
	fields.any(byte(fieldSignature), sig("g"), sig("uoss"))
	b.any(uint32(len(fields.data)))
	b.data = append(b.data, fields.data...)
	b.pad(8)
	return append(b.data, rest.data...)
}

type sig string

// writer writes values in the form of D-Bus.
type writer struct {
	data  []byte
	order binary.AppendByteOrder
}

func (w *writer) pad(n int) {
	for len(w.data)%n != 0 {
		w.data = append(w.data, 0)
	}
}

func (w *writer) any(values ...any) {
	for _, v := range values {
		switch v := v.(type) {
		case byte:
			w.data = append(w.data, v)
		case uint32:
			w.pad(4)
			w.data = w.order.AppendUint32(w.data, v)
		case string:
			w.any(uint32(len(v)))
			w.data = append(append(w.data, v...), 0)
		case sig:
			w.data = append(append(append(w.data, byte(len(v))), v...), 0)
		}
	}
}

// serve is a bus with a systemd behind it. It answers the calls in turn with
// answers.
func serve(t *testing.T, answers ...[]byte) (socket string, asked func() []string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "bus")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	calls := make(chan []string, 1)
	go func() {
		var bodies []string
		defer func() { calls <- bodies }()
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		hello, err := r.ReadString('\n')
		if err != nil || !strings.HasPrefix(hello, "\x00AUTH EXTERNAL ") {
			return
		}
		_, _ = io.WriteString(conn, "OK 0123\r\n")
		if begin, err := r.ReadString('\n'); err != nil || begin != "BEGIN\r\n" {
			return
		}
		for _, answer := range answers {
			fixed := make([]byte, 16)
			if _, err := io.ReadFull(r, fixed); err != nil {
				return
			}
			rest := make([]byte, (binary.LittleEndian.Uint32(fixed[12:])+7)/8*8+binary.LittleEndian.Uint32(fixed[4:]))
			if _, err := io.ReadFull(r, rest); err != nil {
				return
			}
			bodies = append(bodies, string(rest))
			if _, err := conn.Write(answer); err != nil {
				return
			}
		}
	}()
	return socket, func() []string { return <-calls }
}

func TestScope(t *testing.T) {
	const job, other = "/org/freedesktop/systemd1/job/7", "/org/freedesktop/systemd1/job/70"
	little := binary.AppendByteOrder(binary.LittleEndian)
	ok := func(serial uint32, body ...any) []byte {
		return compose(little, methodReturn, serial, "", "", body...)
	}
	removed := func(order binary.AppendByteOrder, path, result string) []byte {
		return compose(order, broadcast, 0, "JobRemoved", "", uint32(7), path, "pk-x.scope", result)
	}
	for _, test := range []struct {
		name   string
		answer [][]byte // to the third call, and the messages after it
		err    string
	}{
		{"done", [][]byte{ok(3, job), removed(little, job, "done")}, ""},
		{"other things happen meanwhile", [][]byte{
			compose(little, broadcast, 0, "NameAcquired", "", uint32(1), job, "", "done"), ok(3, job),
			removed(little, other, "failed"), compose(little, methodReturn, 9, "", "", "x"), removed(little, job, "done"),
		}, ""},
		{"in the other byte order", [][]byte{ok(3, job), removed(binary.BigEndian, job, "done")}, ""},
		{"the job fails", [][]byte{ok(3, job), removed(little, job, "failed")}, "systemd could not make a scope"},
		{
			"refused", [][]byte{compose(little, methodError, 3, "", "org.freedesktop.DBus.Error.AccessDenied", "no")},
			"systemd does not give a scope: no (org.freedesktop.DBus.Error.AccessDenied)",
		},
		{"cut off", [][]byte{ok(3, job)}, "systemd does not say whether there is a scope: EOF"},
		{"rubbish", [][]byte{bytes.Repeat([]byte{0xff}, 64)}, "systemd does not give a scope: the bus sent something that is not a message"},
	} {
		t.Run(test.name, func(t *testing.T) {
			socket, asked := serve(t, ok(1, ":1.1"), ok(2), bytes.Join(test.answer, nil))
			b, err := dialBus(socket)
			require.NoError(t, err)
			defer b.close()
			err = b.scope("pk-x.scope", scopeLike{slice: "app.slice", tasks: 77})
			if test.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.err)
			}
			calls := asked()
			require.Len(t, calls, 3)
			for _, want := range []string{"StartTransientUnit", "pk-x.scope", "PIDs", "Delegate", "Slice", "app.slice", "TasksMax"} {
				assert.Contains(t, calls[2], want)
			}
		})
	}
}

func TestBusThatRefuses(t *testing.T) {
	_, err := dialBus(filepath.Join(t.TempDir(), "none"))
	assert.ErrorContains(t, err, "no such file or directory")

	socket := filepath.Join(t.TempDir(), "bus")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, _ = io.WriteString(conn, "REJECTED EXTERNAL\r\n")
			_, _ = io.Copy(io.Discard, conn)
			conn.Close()
		}
	}()
	_, err = dialBus(socket)
	assert.EqualError(t, err, `the bus said "REJECTED EXTERNAL"`)
}

// Whatever the peer sends, reading ends and allocates little memory.
func FuzzMessage(f *testing.F) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		f.Add(compose(order, broadcast, 0, "JobRemoved", "", uint32(7), "/job", "unit", "done"))
		f.Add(compose(order, methodError, 3, "", "org.x", "text"))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b := &bus{r: bufio.NewReader(bytes.NewReader(data))}
		for {
			m, err := b.read()
			if err != nil {
				return
			}
			d := decoder{data: m.body, order: m.order}
			d.u32()
			d.str()
			d.str()
		}
	})
}
