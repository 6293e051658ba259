import Bytes
import Foundation
import System
import TestSupport
import Testing

@Suite(.within(minutes: 10)) struct DiskTests {
    @Test func `writes, reads, truncates and renames`() throws {
        try withTemporaryDirectory { path in
            let directory = try DiskDirectory(path)
            let file = try directory.open("a", for: .creating)
            let four: [UInt8] = [1, 2, 3, 4]
            try file.write(four.span.bytes, at: 2)
            try file.sync()
            #expect(try file.size() == 6)
            #expect(try bytes(of: file) == [0, 0, 1, 2, 3, 4])
            try file.truncate(to: 3)
            try file.reserve(8192)
            #expect(try file.size() == 8192)
            try directory.rename("a", to: "b")
            try directory.sync()
            #expect(try directory.names() == ["b"])
            #expect(try directory.freeBytes() > 0)
            try directory.remove("b")
            #expect(try directory.names() == [])
        }
    }

    @Test func `says what failed and on what`() throws {
        try withTemporaryDirectory { path in
            let directory = try DiskDirectory(path)
            let error = #expect(throws: SystemError.self) { try directory.open("missing", for: .reading) }
            #expect(error?.operation == "open" && error?.subject == path + "/missing")
        }
    }

    @Test func `gives a lock to one holder and says who has it`() throws {
        try withTemporaryDirectory { path in
            let directory = try DiskDirectory(path)
            var first: (any StorageLock)?
            if case .taken(let lock) = try directory.lock("LOCK") { first = lock }
            #expect(first != nil)
            guard case .heldElsewhere(let holder) = try directory.lock("LOCK") else {
                Issue.record("the lock was given twice")
                return
            }
            #expect(holder == currentProcessID())
            first = nil
            guard case .taken = try directory.lock("LOCK") else {
                Issue.record("the lock was not given back")
                return
            }
        }
    }

    @Test func `a lock is given back though a child that was just forked shares it`() throws {
        try withTemporaryDirectory { path in
            let directory = try DiskDirectory(path)
            var first: (any StorageLock)?
            if case .taken(let lock) = try directory.lock("LOCK") { first = lock }
            #expect(first != nil)
            let shared = try #require(try Self.copyOfDescriptor(of: path + "/LOCK"))
            defer { close(shared) }
            first = nil
            guard case .taken = try directory.lock("LOCK") else {
                Issue.record("the lock was not given back")
                return
            }
        }
    }

    /// Returns a copy of the file's descriptor, such as a forked child would have; nil if the file is not open.
    private static func copyOfDescriptor(of file: String) throws -> Int32? {
        let file = URL(fileURLWithPath: file).resolvingSymlinksInPath().path
        let own = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")
        let number = own.first { number in
            (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(number)")) == file
        }
        return number.flatMap { Int32($0) }.map { dup($0) }
    }

    @Test func `a pulse wakes who waits and lets go at the deadline`() throws {
        let pulse = Pulse()
        #expect(pulse.wait(beyond: 0, untilMonotonic: Clock.monotonicNanoseconds() + 1_000_000) == 0)
        let thread = try BackgroundThread("test") { pulse.beat() }
        #expect(pulse.wait(beyond: 0, untilMonotonic: Clock.monotonicNanoseconds() + 10_000_000_000) == 1)
        thread.join()
    }

    private func bytes(of file: any StorageFile) throws -> [UInt8] {
        var bytes = [UInt8](repeating: 9, count: 100)
        let count = try bytes.withUnsafeMutableBytes { buffer in try file.read(into: buffer, at: 0) }
        return Array(bytes.prefix(count))
    }
}

@Suite(.within(minutes: 10)) struct DirectoriesTests {
    /// Relative path to the root directory from any working directory.
    private let roundabout = String(repeating: "../", count: 30)

    @Test func `makes a directory with its parents, named from the root or not`() throws {
        let base = TemporaryDirectory.make("directories")
        try Directories.make(base + "/a/b")
        try Directories.make(roundabout + base.dropFirst() + "/c/d")
        _ = try DiskDirectory(base + "/a/b")
        _ = try DiskDirectory(base + "/c/d")
    }

    @Test func `says the way from the root`() throws {
        #expect(try Directories.absolute("/a/b") == "/a/b")
        let here = try Directories.absolute("data")
        #expect(here.hasPrefix("/") && here.hasSuffix("/data"))
    }
}
