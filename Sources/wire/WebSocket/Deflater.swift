import Bytes
import CZlib

/// Compressor of messages for permessage-deflate (RFC 7692 §7.2.1). Each message is compressed on its own, so that one
/// result serves every subscriber that agreed to compression. One object serves a whole thread.
public final class Deflater {
    private let stream = ZlibStream()
    /// Output buffer of `withCompressed`; nil while it is in use.
    private var output: ByteWriter? = ByteWriter()
    /// Number of bytes that the output buffer may keep, so that a rare large message does not hold memory.
    private static let keptOutputBytes = 64 << 10
    /// Length of the tail 00 00 FF FF. The sender removes it and the receiver adds it again.
    private static let tailBytes = 4

    /// Makes a deflater. `level` is zlib's compression level, from 0 (copy only) to 9. `windowBits` is the window size
    /// as a power of two, 9 to 15.
    public init(level: Int, windowBits: Int = 15) {
        precondition(
            level >= 0 && level <= 9 && windowBits >= 9 && windowBits <= 15, "zlib knows no such level or window")
        // SAFETY: the stream is new, zeroed, and keeps its address until `deflateEnd`.
        let status = unsafe deflateInit2_(
            stream.pointer, CInt(level), Z_DEFLATED, CInt(-windowBits), 8, Z_DEFAULT_STRATEGY, ZLIB_VERSION,
            CInt(MemoryLayout<z_stream>.size))
        precondition(status == Z_OK, "zlib must have memory for one window a thread")
    }

    deinit {
        // SAFETY: the stream was made by `deflateInit2_` and is not used again.
        _ = unsafe deflateEnd(stream.pointer)
    }

    /// Appends the compressed form of one message, without the four bytes with which every such message would end.
    ///
    /// Returns false, and appends nothing, if compression saves at most one byte. The caller then sends the message
    /// uncompressed.
    public func compress(_ message: RawSpan, to writer: inout ByteWriter) -> Bool {
        precondition(message.byteCount <= Int32.max, "zlib counts a message's bytes in 32 bits")
        guard message.byteCount > 0 else { return false }
        // SAFETY: the stream was made by `deflateInit2_`.
        let status = unsafe deflateReset(stream.pointer)
        precondition(status == Z_OK, "a stream that was made can be reset")
        let start = writer.count
        let isWhole = flush(message, room: message.byteCount - 1 + Self.tailBytes, to: &writer)
        writer.truncate(to: isWhole ? writer.count - Self.tailBytes : start)
        return isWhole
    }

    /// Writes at most `room` bytes. Returns true if they hold the whole message.
    private func flush(_ message: RawSpan, room: Int, to writer: inout ByteWriter) -> Bool {
        defer { stream.clear() }
        // SAFETY: zlib reads the borrowed message and writes into the room that the writer made, inside the closures
        // only; afterwards both addresses are forgotten.
        _ = unsafe writer.append(upTo: room) { target in
            unsafe message.withUnsafeBytes { source in
                unsafe stream.setInput(source)
                unsafe stream.setOutput(target)
                _ = unsafe deflate(stream.pointer, Z_SYNC_FLUSH)
                return target.count - stream.roomLeft
            }
        }
        // If the output has room left, zlib has written the whole message.
        return stream.inputLeft == 0 && stream.roomLeft > 0
    }

    /// Compresses a message and passes the result to `use`. Returns false, without calling `use`, if the result is not
    /// shorter.
    func withCompressed(_ message: RawSpan, _ use: (RawSpan) -> Void) -> Bool {
        var compressed = output.take() ?? ByteWriter()
        let isShorter = compress(message, to: &compressed)
        if isShorter { use(compressed.bytes) }
        compressed.removeAll()
        compressed.shrink(to: Self.keptOutputBytes)
        output = consume compressed
        return isShorter
    }
}
