package limits

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// The few D-Bus calls to systemd that a scope needs. systemd-run(1) would do
// the same, but it puts INVOCATION_ID into the command's environment, and from
// 254 on means to expand $NAME in the command.

// busTimeout bounds the whole conversation: a few messages, and the time in which
// systemd makes a directory. It covers a machine under heavy load.
const busTimeout = 10 * time.Second

// maxMessage is far above the size of systemd's answers to these calls.
const maxMessage = 1 << 20

// bus is a connection to a message bus.
type bus struct {
	conn   net.Conn
	r      *bufio.Reader
	serial uint32
}

// message holds the parts of a D-Bus message that are used here.
type message struct {
	kind   byte
	reply  uint32 // serial of the call that it answers
	member string
	failed string // name of the error
	order  binary.ByteOrder
	body   []byte
}

// Kinds of messages, and the fields of their headers.
const (
	methodCall   = 1
	methodReturn = 2
	methodError  = 3
	broadcast    = 4

	fieldPath        = 1
	fieldInterface   = 2
	fieldMember      = 3
	fieldError       = 4
	fieldReply       = 5
	fieldDestination = 6
	fieldSignature   = 8
)

// dialBus connects to the bus behind a socket and introduces this process.
func dialBus(socket string) (*bus, error) {
	conn, err := net.DialTimeout("unix", socket, busTimeout)
	if err != nil {
		return nil, err
	}
	b := &bus{conn: conn, r: bufio.NewReader(conn)}
	if err := b.introduce(); err != nil {
		conn.Close()
		return nil, err
	}
	return b, nil
}

func (b *bus) close() { b.conn.Close() }

func (b *bus) introduce() error {
	if err := b.conn.SetDeadline(time.Now().Add(busTimeout)); err != nil {
		return err
	}
	uid := hex.EncodeToString([]byte(strconv.Itoa(os.Geteuid())))
	if _, err := io.WriteString(b.conn, "\x00AUTH EXTERNAL "+uid+"\r\n"); err != nil {
		return err
	}
	line, err := b.r.ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, "OK ") {
		return fmt.Errorf("the bus said %q", strings.TrimSpace(line))
	}
	if _, err := io.WriteString(b.conn, "BEGIN\r\n"); err != nil {
		return err
	}
	const self = "org.freedesktop.DBus"
	_, err = b.call(self, "/org/freedesktop/DBus", self, "Hello", "", nil)
	return err
}

// call sends a method call and returns the answer to it. It drops signals that
// come before the answer.
func (b *bus) call(destination, path, iface, member, signature string, body encoder) (message, error) {
	b.serial++
	var head encoder
	head.bytes('l', methodCall, 0, 1)
	head.u32(uint32(len(body)))
	head.u32(b.serial)
	head.array(8, func() {
		for _, f := range []struct {
			code        byte
			kind, value string
		}{{fieldPath, "o", path}, {fieldInterface, "s", iface}, {fieldMember, "s", member}, {fieldDestination, "s", destination}} {
			head.align(8)
			head.bytes(f.code)
			head.signature(f.kind)
			head.str(f.value)
		}
		if signature != "" {
			head.align(8)
			head.bytes(fieldSignature)
			head.signature("g")
			head.signature(signature)
		}
	})
	head.align(8)
	if _, err := b.conn.Write(append(head, body...)); err != nil {
		return message{}, err
	}
	for {
		m, err := b.read()
		if err != nil {
			return message{}, err
		}
		if m.reply != b.serial {
			continue
		}
		if m.kind == methodError {
			d := decoder{data: m.body, order: m.order}
			return m, &busError{m.failed, d.str()}
		}
		return m, nil
	}
}

// busError is an answer that is an error.
type busError struct{ name, text string }

func (e *busError) Error() string { return fmt.Sprintf("%s (%s)", e.text, e.name) }

var errMessage = errors.New("the bus sent something that is not a message")

// read reads the next message.
func (b *bus) read() (message, error) {
	fixed := make([]byte, 16)
	if _, err := io.ReadFull(b.r, fixed); err != nil {
		return message{}, err
	}
	m := message{kind: fixed[1], order: binary.LittleEndian}
	if fixed[0] == 'B' {
		m.order = binary.BigEndian
	}
	bodyLen, fieldsLen := m.order.Uint32(fixed[4:]), m.order.Uint32(fixed[12:])
	if bodyLen > maxMessage || fieldsLen > maxMessage {
		return message{}, errMessage
	}
	fields := make([]byte, (fieldsLen+7)/8*8) // the header ends at a multiple of 8; 16 bytes are read
	m.body = make([]byte, bodyLen)
	for _, part := range [][]byte{fields, m.body} {
		if _, err := io.ReadFull(b.r, part); err != nil {
			return message{}, err
		}
	}
	d := decoder{data: fields[:fieldsLen], order: m.order}
	for d.more() {
		d.align(8)
		code, kind := d.u8(), d.signature()
		switch kind {
		case "s", "o":
			text := d.str()
			switch code {
			case fieldMember:
				m.member = text
			case fieldError:
				m.failed = text
			}
		case "g":
			d.signature()
		case "u":
			if n := d.u32(); code == fieldReply {
				m.reply = n
			}
		default:
			return message{}, errMessage
		}
	}
	if d.short {
		return message{}, errMessage
	}
	return m, nil
}

// encoder builds a part of a message that begins at a multiple of 8.
type encoder []byte

func (e *encoder) align(n int) {
	for len(*e)%n != 0 {
		*e = append(*e, 0)
	}
}

func (e *encoder) bytes(b ...byte) { *e = append(*e, b...) }

func (e *encoder) u32(n uint32) {
	e.align(4)
	*e = binary.LittleEndian.AppendUint32(*e, n)
}

func (e *encoder) u64(n uint64) {
	e.align(8)
	*e = binary.LittleEndian.AppendUint64(*e, n)
}

func (e *encoder) str(s string) {
	e.u32(uint32(len(s)))
	e.bytes(append([]byte(s), 0)...)
}

func (e *encoder) signature(s string) {
	e.bytes(byte(len(s)))
	e.bytes(append([]byte(s), 0)...)
}

// array writes an array of the elements that fill adds, which begin at multiples of align. Its
// length does not count padding before the first one.
func (e *encoder) array(align int, fill func()) {
	e.u32(0)
	at := len(*e)
	e.align(align)
	begin := len(*e)
	fill()
	binary.LittleEndian.PutUint32((*e)[at-4:], uint32(len(*e)-begin))
}

// decoder reads a part of a message. Reads beyond its end return zeros and set
// short.
type decoder struct {
	data  []byte
	order binary.ByteOrder
	at    int
	short bool
}

func (d *decoder) more() bool { return !d.short && d.at < len(d.data) }

func (d *decoder) align(n int) { d.at = (d.at + n - 1) / n * n }

func (d *decoder) take(n int) []byte {
	if d.short || n > len(d.data)-d.at {
		d.short = true
		return make([]byte, min(n, 4))
	}
	d.at += n
	return d.data[d.at-n : d.at]
}

func (d *decoder) u8() byte { return d.take(1)[0] }

func (d *decoder) u32() uint32 {
	d.align(4)
	return d.order.Uint32(d.take(4))
}

func (d *decoder) str() string {
	s := string(d.take(int(d.u32())))
	d.take(1)
	return s
}

func (d *decoder) signature() string {
	s := string(d.take(int(d.u8())))
	d.take(1)
	return s
}
