import Foundation
import System
import TestSupport
import Testing

@Suite(.within(minutes: 1)) struct RemovingTests {
    @Test func `a directory goes with what is in it, and what a link points to stays`() throws {
        let (inside, outside) = (TemporaryDirectory.make("inside"), TemporaryDirectory.make("outside"))
        try Data("x".utf8).write(to: URL(fileURLWithPath: outside + "/kept"))
        try Directories.make(inside + "/a/b")
        for name in ["one", "a/two", "a/b/three"] { try Data().write(to: URL(fileURLWithPath: inside + "/" + name)) }
        try FileManager.default.createSymbolicLink(atPath: inside + "/a/link", withDestinationPath: outside)
        try Directories.removeAll(inside)
        #expect(!Directories.isThere(inside) && Directories.isThere(outside + "/kept"))
        #expect(throws: SystemError.self) { try Directories.removeAll(inside) }
        let deep = TemporaryDirectory.make("deep")
        try Directories.make(deep + String(repeating: "/d", count: 20))
        #expect(throws: SystemError.self) { try Directories.removeAll(deep) }
    }
}
