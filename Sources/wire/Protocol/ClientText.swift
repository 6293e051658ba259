import Bytes

/// What kind of thing a client is told in words, for programs: the field `code` of `system` messages. Their texts may come to
/// say more; a code stays.
public enum TextCode: String, Sendable, Hashable, CaseIterable {
    // MARK: Why nothing is subscribed to

    case notPublished = "NotPublished"
    case publishedAsOther = "PublishedAsOther"
    case notATable = "NotATable"
    case noSuchTable = "NoSuchTable"
    case tooManyTables = "TooManyTables"
    case invalidBinding = "InvalidBinding"
    case invalidFilter = "InvalidFilter"
    case unknownRole = "UnknownRole"

    // MARK: What is not to be expected of what is subscribed to

    case rowsRefused = "RowsRefused"
    case nothingReadable = "NothingReadable"
    case nobodyDecides = "NobodyDecides"
    case policyNotJudged = "PolicyNotJudged"
    case operationsNotPublished = "OperationsNotPublished"
    case rowsLeftOut = "RowsLeftOut"
    case columnsNotComputed = "ColumnsNotComputed"
    case deletesFromLog = "DeletesFromLog"
    case deletesHidden = "DeletesHidden"
    case movesFromLog = "MovesFromLog"
    case movesHidden = "MovesHidden"
    case unknownOption = "UnknownOption"
    case unknownEvent = "UnknownEvent"
    case suspectValue = "SuspectValue"

    // MARK: What happens to it

    case changesMissing = "ChangesMissing"
    case valuesMissing = "ValuesMissing"
    case filtersRest = "FiltersRest"
    case truncated = "Truncated"

    // MARK: What channels say

    case messageDropped = "MessageDropped"
    case caughtUp = "CaughtUp"
    case snapshotComplete = "SnapshotComplete"
    case snapshotFailed = "SnapshotFailed"

    // MARK: Why a channel ends

    case tokenRefused = "TokenRefused"
    case tokenExpired = "TokenExpired"
    case unauthorized = "Unauthorized"
    case rightsLost = "RightsLost"
    case rightsUnknown = "RightsUnknown"
    case tooManyMessages = "TooManyMessages"
    case tooManyPresences = "TooManyPresenceMessages"
    case presenceTooLarge = "PresenceTooLarge"
    case notReady = "ReplicationNotReady"
}

/// What a client is told, in words for those who read it and with a code for programs.
public struct ClientText: Sendable, Hashable {
    public let code: TextCode
    public var text: String

    public init(_ code: TextCode, _ text: String) {
        self.code = code
        self.text = text
    }
}

extension ClientText {
    /// The code of an error's reason: reasons are written `Code: text`, and those that are not are few and short.
    static func appendCode(ofReason reason: RawSpan, to writer: inout ByteWriter) {
        var end = 0
        while end < reason.byteCount, isLetter(reason.byte(end)) { end += 1 }
        if end > 0, end < reason.byteCount, reason.byte(end) == UInt8(ascii: ":") {
            return writer.append(reason.extracting(first: end))
        }
        var begins = true
        for index in 0..<min(reason.byteCount, maximumCodeBytes) {
            let byte = reason.byte(index)
            if isLetter(byte) { writer.append(begins && byte >= 97 ? byte - 32 : byte) }
            begins = !isLetter(byte)
        }
    }

    private static let maximumCodeBytes = 64

    private static func isLetter(_ byte: UInt8) -> Bool { (65...90).contains(byte) || (97...122).contains(byte) }
}
