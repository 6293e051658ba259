import System
import TestSupport
import Testing

@Suite(.within(minutes: 5), .serialized) struct ProcessFiguresTests {
    @Test func `time, memory and start are those of this process`() throws {
        let first = ProcessFigures.now()
        let mebibytes = 16
        var memory = [UInt8](repeating: 0, count: mebibytes << 20)
        for place in stride(from: 0, to: memory.count, by: 1024) {
            memory[place] = UInt8(truncatingIfNeeded: place >> 10)
        }
        let second = ProcessFigures.now()
        #expect(second.cpuNanoseconds > first.cpuNanoseconds)
        let resident = try #require(second.residentBytes)
        let virtual = try #require(second.virtualBytes)
        #expect(resident > UInt64(memory.count) && resident <= virtual)
        #expect(memory[1024] == 1)
        let began = try #require(ProcessFigures.startedAt())
        let now = Clock.unixMicroseconds() / 1_000_000
        // The kernel's clock and the wall clock may differ a little. A test process runs for hours at most.
        #expect(began <= now + 5 && began > now - 86_400)
    }

    private static func duplicates(_ count: Int) throws -> [Int32] {
        let pipe = try Pipe()
        defer {
            ByteStream.close(pipe.reading)
            ByteStream.close(pipe.writing)
        }
        return (0..<count).compactMap { _ in DescriptorTable.duplicate(pipe.reading) }
    }

    @Test func `open descriptors are counted, and how many there may be is known`() throws {
        let most = DescriptorTable.raiseLimit()
        #expect(ProcessFigures.now().maximumDescriptors == most)
        let opened = try Self.duplicates(300)
        defer { opened.forEach(ByteStream.close) }
        let count = try #require(ProcessFigures.now().openDescriptors)
        #expect(opened.count == 300 && count >= 300 && count <= most)
    }

    @Test func `a thread's own table counts where it is the fullest`() throws {
        DescriptorTable.raiseLimit()
        let before = try #require(ProcessFigures.now().openDescriptors)
        let (ready, done) = (try Pipe(), try Pipe())
        let thread = try BackgroundThread("own table") {
            try? DescriptorTable.leaveShared(keeping: [ready.writing, done.reading])
            let opened = try? Self.duplicates(before + 500)
            _ = ByteStream.write([1], to: ready.writing)
            _ = ByteStream.read(done.reading)
            opened?.forEach(ByteStream.close)
        }
        _ = ByteStream.read(ready.reading)
        let count = try #require(ProcessFigures.now().openDescriptors)
        _ = ByteStream.write([1], to: done.writing)
        thread.join()
        #expect(count >= before + 500)
        for end in [ready.reading, ready.writing, done.reading, done.writing] { ByteStream.close(end) }
    }
}
