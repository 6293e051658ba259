import Bytes
import Glibc
import Synchronization
import System

/// Compressed file inside an archive. Its reader sees it uncompressed.
final class CompressedFile: StorageFile {
    let path: String
    private let file: any StorageFile
    private let frames: [SeekableFrames.Frame]
    private let whole: UInt64
    /// Uncompressed frames that were read last, newest first. Readers mostly continue in the same frame, and some look
    /// back a little.
    private let recent = Mutex<[(index: Int, bytes: [UInt8])]>([])
    private static let mostRecent = 3

    init(path: String, file: any StorageFile, position: UInt64, size: UInt64) throws(SystemError) {
        self.path = path
        self.file = file
        frames = try SeekableFrames.frames(of: file, from: position, size: size, path: path)
        whole = frames.last.map { $0.start + UInt64($0.count) } ?? 0
    }

    func read(into buffer: UnsafeMutableRawBufferPointer, at position: UInt64) throws(SystemError) -> Int {
        var done = 0
        while done < buffer.count, position + UInt64(done) < whole {
            let place = position + UInt64(done)
            let index = index(of: place)
            let bytes = try bytes(index)
            let start = Int(place - frames[index].start)
            let count = min(bytes.count - start, buffer.count - done)
            // SAFETY: both ranges lie within their buffers, by the line above, and the buffers do not overlap.
            unsafe bytes.withUnsafeBytes { source in
                unsafe UnsafeMutableRawBufferPointer(rebasing: buffer[done..<done + count])
                    .copyMemory(from: UnsafeRawBufferPointer(rebasing: source[start..<start + count]))
            }
            done += count
        }
        return done
    }

    /// Returns the index of the frame with the byte at this offset of the uncompressed file. The offset must lie in the
    /// file.
    private func index(of place: UInt64) -> Int {
        var (low, high) = (0, frames.count - 1)
        while low < high {
            let middle = (low + high + 1) / 2
            if frames[middle].start <= place { low = middle } else { high = middle - 1 }
        }
        return low
    }

    private func bytes(_ index: Int) throws(SystemError) -> [UInt8] {
        let known = recent.withLock { recent -> [UInt8]? in
            guard let place = recent.firstIndex(where: { $0.index == index }) else { return nil }
            if place > 0 { recent.insert(recent.remove(at: place), at: 0) }
            return recent[0].bytes
        }
        if let known { return known }
        let frame = frames[index]
        let compressed = try file.bytes(at: frame.position, count: frame.compressed)
        let bytes = try FrameDecompressor.whole(compressed, count: frame.count, path: path)
        recent.withLock { recent in
            recent.insert((index, bytes), at: 0)
            if recent.count > Self.mostRecent { recent.removeLast() }
        }
        return bytes
    }

    private var refusal: SystemError { SystemError(operation: "write", subject: path, code: EROFS) }

    func write(_ bytes: RawSpan, at position: UInt64) throws(SystemError) { throw refusal }
    func sync() throws(SystemError) { throw refusal }
    func truncate(to size: UInt64) throws(SystemError) { throw refusal }
    func reserve(_ size: UInt64) throws(SystemError) { throw refusal }
    func size() throws(SystemError) -> UInt64 { whole }
}
