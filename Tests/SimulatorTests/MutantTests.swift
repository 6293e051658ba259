import Foundation
import TestSupport
import Testing

/// Tests that the patches in `Tests/Simulator/Mutants`, each of which adds a fault, fit the current code.
@Suite(.within(minutes: 1)) struct MutantTests {
    private static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()
    private static let folder = root.appendingPathComponent("Tests/Simulator/Mutants")
    static let names: [String] = {
        let found = try? FileManager.default.contentsOfDirectory(atPath: folder.path)
        return (found ?? []).filter { $0.hasSuffix(".patch") }.sorted()
    }()

    @Test func `there are the ten that were asked for`() { #expect(Self.names.count >= 10) }

    @Test(arguments: names) func `a fault that is put back still fits`(name: String) throws {
        let patch = try String(contentsOf: Self.folder.appendingPathComponent(name), encoding: .utf8)
        var file = ""
        var wanted: [Substring] = []
        func check() {
            defer { wanted = [] }
            guard !wanted.isEmpty else { return }
            let fits = file.contains(wanted.joined(separator: "\n"))
            #expect(fits, "\(name) does not fit any more: look at its hunks")
        }
        // The fault's description is before the patch's first file.
        for line in patch.split(separator: "\n", omittingEmptySubsequences: false) {
            if line.hasPrefix("--- a/") {
                check()
                file = try String(
                    contentsOf: Self.root.appendingPathComponent(String(line.dropFirst(6))), encoding: .utf8)
            } else if line.hasPrefix("@@") {
                check()
            } else if !file.isEmpty, line.hasPrefix(" ") || line.hasPrefix("-") {
                wanted.append(line.dropFirst())
            }
        }
        #expect(!file.isEmpty)
        check()
    }
}
