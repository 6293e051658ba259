import Bytes
import CZlib

/// Reason for refusing a compressed message.
enum InflateError: Error {
    case malformed
    case tooLarge
}

/// Decompressor of permessage-deflate messages (RFC 7692 §7.2.2), each on its own. One object serves a whole thread. It
/// allocates memory when it gets its first compressed message, and keeps no data between messages.
public final class Inflater {
    private var stream: ZlibStream?
    /// True if the data read last was a final block. Further data then begins another stream.
    private var isAtEnd = false
    /// Largest number of bytes that one step writes. The limit is checked after each step.
    private static let stepBytes = 16 << 10
    /// Bytes that the sender removed from the end of a message (RFC 7692 §7.2.1).
    private static let tail: [UInt8] = [0, 0, 0xFF, 0xFF]

    public init() {}

    deinit {
        // SAFETY: the stream was made by `inflateInit2_`, and is not used again.
        if let stream { _ = unsafe inflateEnd(stream.pointer) }
    }

    /// Appends the decompressed message to the writer. Throws `tooLarge` if it has more than `limit` bytes; then up to
    /// `limit` + 1 bytes were written.
    func inflate(_ compressed: RawSpan, into writer: inout ByteWriter, limit: Int) throws(InflateError) {
        // The protocol sends an empty message as one byte (RFC 7692 §7.2.3.6). No bytes at all can only mean the same.
        if compressed.byteCount == 0 { return }
        let stream = prepared()
        let end = writer.count + limit
        try feed(compressed, to: stream, into: &writer, end: end)
        // If the message ends with a final block, the sender may have removed no tail.
        if isAtEnd { return }
        // SAFETY: any byte is a valid UInt8, and the span lives for the call.
        unsafe try feed(Self.tail.span.bytes, to: stream, into: &writer, end: end)
        // If the message ends within a block, the block has consumed the tail as its own data.
        guard isAtEnd || stream.isBetweenBlocks else { throw .malformed }
    }

    private func prepared() -> ZlibStream {
        isAtEnd = false
        if let stream {
            // SAFETY: the stream was made by `inflateInit2_`.
            let status = unsafe inflateReset(stream.pointer)
            precondition(status == Z_OK, "a stream that was made can be reset")
            return stream
        }
        let made = ZlibStream()
        // SAFETY: the stream is new, zeroed, and keeps its address.
        let status = unsafe inflateInit2_(
            made.pointer, -MAX_WBITS, ZLIB_VERSION, CInt(MemoryLayout<z_stream>.size))
        precondition(status == Z_OK, "zlib must have memory for one window a thread")
        stream = made
        return made
    }

    private func feed(
        _ input: RawSpan, to stream: ZlibStream, into writer: inout ByteWriter, end: Int
    ) throws(InflateError) {
        precondition(input.byteCount <= UInt32.max, "zlib counts a step's bytes in 32 bits")
        defer { stream.clear() }
        // SAFETY: zlib reads the borrowed input inside the closure only; afterwards its address is forgotten.
        unsafe try input.withUnsafeBytes { (bytes) throws(InflateError) in
            unsafe stream.setInput(bytes)
            while try step(stream, into: &writer, end: end) {}
        }
    }

    /// Writes the output of one step. Returns true if there may be more.
    private func step(
        _ stream: ZlibStream, into writer: inout ByteWriter, end: Int
    ) throws(InflateError) -> Bool {
        if isAtEnd {
            guard stream.inputLeft > 0 else { return false }
            try beginAgain(stream)
        }
        // Allows one byte more than the limit: if that byte is written, the message is too large.
        let room = min(Self.stepBytes, end - writer.count + 1)
        var status = Z_OK
        // SAFETY: zlib writes inside the room that the writer made, and the closure says how much.
        _ = unsafe writer.append(upTo: room) { target in
            unsafe stream.setOutput(target)
            status = unsafe CZlib.inflate(stream.pointer, Z_NO_FLUSH)
            return target.count - stream.roomLeft
        }
        guard writer.count <= end else { throw .tooLarge }
        switch status {
        case Z_STREAM_END: isAtEnd = true
        case Z_OK: break
        // No progress is possible: all input is read, and all its output is written.
        case Z_BUF_ERROR: return false
        default: throw .malformed
        }
        return stream.inputLeft > 0 || stream.roomLeft == 0
    }

    /// Starts a new stream, because a message may continue after a final block (RFC 7692 §7.2.3.4).
    private func beginAgain(_ stream: ZlibStream) throws(InflateError) {
        // SAFETY: the stream was made by `inflateInit2_`; a reset keeps its input.
        guard unsafe inflateReset(stream.pointer) == Z_OK else { throw .malformed }
        isAtEnd = false
    }
}
