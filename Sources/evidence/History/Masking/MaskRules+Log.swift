import EventLog
import System

extension MaskRules {
    /// Reads the rules that a hub left in its log's directory, or that a bundle has; nil if there are none.
    ///
    /// - Throws: `MaskRulesFailure` or `MaskRulesError` if the rules are unreadable. No value of the log may be shown
    ///   then.
    public init?(of directory: any StorageDirectory) throws {
        guard let text = try MaskRulesFile.read(in: directory) else { return nil }
        try self.init(file: String(decoding: text, as: UTF8.self))
    }

    /// Returns rules that mask every value that either the rules in a log's directory or the given rules mask.
    ///
    /// - Parameter own: rules of the user who reads the log; nil if there are none.
    public static func obeying(_ directory: any StorageDirectory, and own: MaskRules?) throws -> MaskRules {
        guard let ofLog = try MaskRules(of: directory) else { return own ?? .usual }
        return own.map { ofLog.joined(with: $0) } ?? ofLog
    }
}
