import Bytes
import CZstd
import Glibc
import System

/// Compressed form of a file that can be read from any offset: zstd frames, each compressed separately, and a table of
/// their sizes at the end. This is zstd's seekable format. `zstd -d` skips the table.
///
///     frame, frame, …, table: magic, bytes, (compressed size, size) of each frame, number of frames, flags, magic
enum SeekableFrames {
    /// End of the name of a compressed file in an archive.
    static let suffix = ".zst"
    /// Number of bytes in one frame. Larger frames become smaller, and reading one row takes longer.
    static let frameBytes = 512 << 10
    /// Maximum number of bytes of a frame that is accepted when reading a file of any origin.
    static let mostFrameBytes = 8 << 20
    static let mostFrames = 1 << 22
    static let level: Int32 = 9

    fileprivate static let tableMagic: UInt32 = 0x184d_2a5e
    fileprivate static let endMagic: UInt32 = 0x8f92_eab1
    fileprivate static let endBytes = 9
    fileprivate static let entryBytes = 8

    /// Offsets and sizes of a frame: in the compressed file and in the uncompressed one.
    struct Frame: Equatable {
        var position: UInt64
        var compressed: Int
        var start: UInt64
        var count: Int
    }

    static func failure(_ operation: String, _ path: String) -> SystemError {
        SystemError(operation: operation, subject: path, code: EIO)
    }

    // MARK: Tables

    static func table(of frames: [Frame]) -> [UInt8] {
        var writer = ByteWriter(capacity: frames.count * entryBytes + endBytes + 8)
        writer.append(little: tableMagic)
        writer.append(little: UInt32(frames.count * entryBytes + endBytes))
        for frame in frames {
            writer.append(little: UInt32(frame.compressed))
            writer.append(little: UInt32(frame.count))
        }
        writer.append(little: UInt32(frames.count))
        writer.append(UInt8(0))
        writer.append(little: endMagic)
        return writer.copied()
    }

    /// Reads the table of frames at the end of a compressed file of `size` bytes, which begins at the offset `start` of
    /// `file`.
    static func frames(
        of file: any StorageFile, from start: UInt64, size: UInt64, path: String
    ) throws(SystemError) -> [Frame] {
        let damage = failure("read the table of compressed parts of", path)
        guard size >= UInt64(endBytes + 8) else { throw damage }
        let end = try file.bytes(at: start + size - UInt64(endBytes), count: endBytes)
        guard end.count == endBytes, number(end, at: 5) == endMagic, end[4] == 0 else { throw damage }
        let count = Int(number(end, at: 0))
        let tableBytes = UInt64(8 + count * entryBytes + endBytes)
        guard count <= mostFrames, tableBytes <= size else { throw damage }
        let table = try file.bytes(at: start + size - tableBytes, count: Int(tableBytes))
        guard table.count == Int(tableBytes), number(table, at: 0) == tableMagic,
            number(table, at: 4) == UInt32(tableBytes - 8)
        else { throw damage }
        var frames: [Frame] = []
        frames.reserveCapacity(count)
        var (position, whole): (UInt64, UInt64) = (0, 0)
        for index in 0..<count {
            let frame = Frame(
                position: start + position, compressed: Int(number(table, at: 8 + index * entryBytes)), start: whole,
                count: Int(number(table, at: 12 + index * entryBytes)))
            guard (1...mostFrameBytes).contains(frame.count), frame.compressed <= 2 * mostFrameBytes else {
                throw damage
            }
            frames.append(frame)
            position += UInt64(frame.compressed)
            whole += UInt64(frame.count)
        }
        guard position + tableBytes == size else { throw damage }
        return frames
    }

    private static func number(_ bytes: [UInt8], at place: Int) -> UInt32 {
        bytes[place..<place + 4].reversed().reduce(0) { $0 << 8 | UInt32($1) }
    }
}

/// Compressor of zstd frames. It uses the same memory for each frame.
@safe
final class FrameCompressor {
    private let context: OpaquePointer

    init() throws(SystemError) {
        // SAFETY: freed in `deinit`, and used by this object alone.
        guard let made = unsafe ZSTD_createCCtx() else {
            throw SystemError(operation: "compress", subject: "zstd", code: ENOMEM)
        }
        unsafe context = made
        // A checksum in each frame, so that damaged bytes are detected.
        unsafe ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1)
        unsafe ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, SeekableFrames.level)
    }

    deinit { unsafe ZSTD_freeCCtx(context) }

    func frame(_ bytes: [UInt8]) throws(SystemError) -> [UInt8] {
        var frame = [UInt8](repeating: 0, count: ZSTD_compressBound(bytes.count))
        let room = frame.count
        // SAFETY: zstd reads and writes within the two buffers, whose sizes it gets, during the call.
        let count = unsafe frame.withUnsafeMutableBytes { output in
            unsafe bytes.withUnsafeBytes { input in
                unsafe ZSTD_compress2(context, output.baseAddress, room, input.baseAddress, input.count)
            }
        }
        guard ZSTD_isError(count) == 0 else { throw SeekableFrames.failure("compress", "a part of the log") }
        frame.removeLast(room - count)
        return frame
    }
}

enum FrameDecompressor {
    /// Returns the uncompressed bytes of a frame; throws unless there are exactly `count`.
    static func whole(_ frame: [UInt8], count: Int, path: String) throws(SystemError) -> [UInt8] {
        assert(count <= SeekableFrames.mostFrameBytes, "the table was checked")
        var bytes = [UInt8](repeating: 0, count: count)
        // SAFETY: zstd reads and writes within the two buffers, whose sizes it gets, during the call.
        let written = unsafe bytes.withUnsafeMutableBytes { output in
            unsafe frame.withUnsafeBytes { input in
                unsafe ZSTD_decompress(output.baseAddress, count, input.baseAddress, input.count)
            }
        }
        guard ZSTD_isError(written) == 0, written == count else { throw SeekableFrames.failure("decompress", path) }
        return bytes
    }
}
