import Bytes
import System
import TestSupport
import Testing

@testable import History

/// Checks compressed files: any place reads like the whole file, and damage is an error.
@Suite(.within(minutes: 5)) struct SeekableFramesTests {
    /// File with a compressed file inside, at `position`.
    private struct Packed {
        let directory = MemoryDirectory()
        let file: any StorageFile
        let position: UInt64 = 512
        let size: UInt64

        init(_ whole: [UInt8], frameBytes: Int) throws {
            let compressor = try FrameCompressor()
            var bytes = [UInt8](repeating: 0xaa, count: Int(position))
            var frames: [SeekableFrames.Frame] = []
            for start in stride(from: 0, to: whole.count, by: frameBytes) {
                let part = Array(whole[start..<min(start + frameBytes, whole.count)])
                let frame = try compressor.frame(part)
                frames.append(
                    SeekableFrames.Frame(
                        position: UInt64(bytes.count) - position, compressed: frame.count, start: UInt64(start),
                        count: part.count))
                bytes += frame
            }
            bytes += SeekableFrames.table(of: frames)
            size = UInt64(bytes.count) - position
            file = try directory.open("archive", for: .creating)
            try file.write((bytes + [1, 2, 3]).rawBytes, at: 0)
        }

        func opened(size: UInt64? = nil) throws -> CompressedFile {
            try CompressedFile(path: "archive: part", file: file, position: position, size: size ?? self.size)
        }
    }

    private static func sample(_ random: inout SeededRandom, count: Int) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(count)
        while bytes.count < count {
            bytes += Array("row \(random.next() % 1000) of a table, sent to nobody; ".utf8)
        }
        return Array(bytes.prefix(count))
    }

    @Test(arguments: seeds(8)) func `any place reads like the whole file`(_ seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let count = [0, 1, 999, 1000, 1001, 50_000][Int(random.next() % 6)]
        let whole = Self.sample(&random, count: count)
        let packed = try Packed(whole, frameBytes: 1000)
        let file = try packed.opened()
        #expect(try file.size() == UInt64(count))
        #expect(try file.contents(atMost: .max) == whole)
        for _ in 0..<200 {
            let start = Int(random.next() % UInt64(count + 50))
            let length = Int(random.next() % 3500)
            let expected = start < count ? Array(whole[start..<min(start + length, count)]) : []
            #expect(try file.bytes(at: UInt64(start), count: length) == expected)
        }
        #expect(throws: SystemError.self) { try file.write([1].rawBytes, at: 0) }
    }

    @Test func `damage of frames or table is an error, and never other bytes`() throws {
        var random = SeededRandom(seed: 7)
        let whole = Self.sample(&random, count: 20_000)
        let packed = try Packed(whole, frameBytes: 1000)
        for _ in 0..<400 {
            let place = packed.position + random.next() % packed.size
            let byte = try packed.file.bytes(at: place, count: 1)
            try packed.file.write([byte[0] ^ UInt8(1 + random.next() % 255)].rawBytes, at: place)
            do {
                let read = try packed.opened().contents(atMost: .max)
                #expect(read == whole, "other bytes at \(place)")
            } catch is SystemError {}
            try packed.file.write(byte.rawBytes, at: place)
        }
        for size in [0, 5, 16, packed.size - 1] {
            #expect(throws: SystemError.self) { try packed.opened(size: size) }
        }
        #expect(try packed.opened().contents(atMost: .max) == whole)
    }
}
