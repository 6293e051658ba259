import Policy
import Postgres

/// Query that PostgreSQL runs for many sets of claims of one role, one after the other. It is a PL/pgSQL function that
/// loops over the claims, or one statement for each set of claims if the login may not create functions.
///
/// Each step sets the claims and the role anew, in a subtransaction that is rolled back. Effects of a policy's
/// functions thus never reach the next step.
public struct ClaimsScript: Sendable, Hashable {
    public enum Shape: Sendable, Hashable {
        /// Row for each set of claims. If the query fails for a set and the inputs have several elements, each
        /// element is tried separately.
        case whole
        /// Any number of rows for each set of claims.
        case rows
    }

    /// Role that runs the query; nil means the connection's own role.
    public let role: String?
    public let shape: Shape
    /// Number of inputs. Each input is an array of texts.
    public let inputCount: Int
    /// Number of outputs. Each output is a text.
    public let outputCount: Int
    /// SQL expression that builds the judged rows from the inputs. The function evaluates it once for all claims. Nil
    /// for queries without rows.
    private let rows: String?
    /// SQL expression that builds one of the judged rows; nil for queries without rows.
    private let rowByElement: String?
    /// SQL of the query in the function, where the inputs are variables.
    private let inFunction: String
    /// SQL of the query as a statement, where the inputs are parameters.
    public let asStatement: String
    /// SQL of a statement that only builds the rows from its parameters, to find out if that fails. Nil for queries
    /// without rows.
    public let makingStatement: String?

    /// SQLSTATE for rows that cannot be built from their texts, because the table's type has changed. Such an error
    /// does not tell who may read the rows. PostgreSQL itself uses no code of this class.
    public static let unmade = "TWROW"

    private init(
        as role: String?, _ shape: Shape, outputs: Int, of row: JudgedRow? = nil, _ sql: (_ rows: String) -> String
    ) {
        self.role = role
        self.shape = shape
        inputCount = row?.columns.count ?? 0
        outputCount = outputs
        rows = row?.array(ClaimsScript.variable)
        rowByElement = row?.array { "\(ClaimsScript.variable($0))[\"tw$element\":\"tw$element\"]" }
        inFunction = sql("\"tw$held\".\"tw$made\"")
        let parameters = row?.array { "CAST($\($0 + 1) AS pg_catalog.text[])" }
        asStatement = sql(parameters ?? "")
        makingStatement = parameters.map { "SELECT pg_catalog.cardinality(\($0))" }
    }

    private static func variable(_ input: Int) -> String { "\"tw$input\(input)\"" }

    public static func == (left: ClaimsScript, right: ClaimsScript) -> Bool {
        left.role == right.role && left.shape == right.shape && left.asStatement == right.asStatement
    }

    public func hash(into hasher: inout Hasher) {
        hasher.combine(role)
        hasher.combine(asStatement)
    }
}

// MARK: Queries

extension ClaimsScript {
    /// Creates the query that tells which rows may be read. Its answer has one digit for each row, in order: `1` if the
    /// row may be read, else `0`. Zeros at the end are omitted, and the answer is NULL if no row may be read.
    ///
    /// The function builds the rows from their texts once for all claims.
    init(judging sql: String, _ row: JudgedRow, as role: String) {
        self.init(as: role, .whole, outputs: 1, of: row) { rows in
            """
            SELECT NULLIF(pg_catalog.rtrim(pg_catalog.string_agg("tw$may", ''), '0'), '')
            FROM (SELECT CASE WHEN (\(sql)
            ) THEN '1' ELSE '0' END FROM \(row.source(rows))) AS "tw$rows" ("tw$may")
            """
        }
    }

    /// Creates the query that returns the terms' values as texts.
    public init(evaluating terms: [AskedTerm], as role: String) {
        self.init(as: role, .whole, outputs: terms.count) { _ in
            "SELECT " + terms.map(ClaimsScript.text).joined(separator: ", ")
        }
    }

    /// Returns SQL for the text of the term's value. A timestamp is written in UTC, as the replication stream writes
    /// it, because the session has the time zone of clients.
    private static func text(_ term: AskedTerm) -> String {
        guard term.type.oid == momentType else { return "CAST((\(term.sql)\n) AS pg_catalog.text)" }
        return """
            (SELECT CASE WHEN NOT pg_catalog.isfinite("tw$moment") THEN CAST("tw$moment" AS pg_catalog.text)
                ELSE pg_catalog.regexp_replace(
                    CAST(pg_catalog.timezone('UTC', "tw$moment") AS pg_catalog.text), '( BC)?$', '+00\\1') END
            FROM (SELECT CAST((\(term.sql)
            ) AS timestamp with time zone)) AS "tw$source" ("tw$moment"))
            """
    }

    /// Oid of `timestamptz`.
    private static let momentType: UInt32 = 1184

    /// Creates the query that returns the keys of a membership and how often each occurs.
    public init(filling sql: String, as role: String?, limit: Int) {
        self.init(as: role, .rows, outputs: 2) { _ in
            """
            SELECT "tw$key", CAST(pg_catalog.count(*) AS pg_catalog.text) FROM (
                SELECT CAST("tw$of" AS pg_catalog.text) COLLATE pg_catalog."C" FROM (\(sql)
                ) AS "tw$source" ("tw$of")) AS "tw$keys" ("tw$key")
            GROUP BY "tw$key" LIMIT \(limit)
            """
        }
    }
}

// MARK: The function

extension ClaimsScript {
    /// Returns the SQL that creates the function. Its output columns are: the number of the claims, from 1; the number
    /// of the element, if elements were tried separately; the error code or NULL; the outputs.
    public func function(named name: String) -> String {
        let inputs = (0..<inputCount).map { ", \(ClaimsScript.variable($0)) pg_catalog.text[]" }.joined()
        let outputs = (0..<outputCount).map { ", \"tw$output\($0)\" pg_catalog.text" }.joined()
        let body = """
            #variable_conflict use_column
            DECLARE
                "tw$one" pg_catalog.text;
                "tw$done" pg_catalog.bool;
                "tw$any" pg_catalog.bool;
                "tw$held" record;
                "tw$isHeld" pg_catalog.bool := false;
                "tw$isMaking" pg_catalog.bool := false;
            BEGIN
                "tw$who" := 0;
                FOREACH "tw$one" IN ARRAY "tw$claims" LOOP
                    "tw$who" := "tw$who" + 1;
                    "tw$element" := NULL;
            \(step(after: making))
            \(stepsByElement)
                END LOOP;
            END
            """
        let quote = ClaimsScript.dollarQuote(notIn: body)
        return """
            CREATE FUNCTION pg_temp.\(name)("tw$claims" pg_catalog.text[]\(inputs))
            RETURNS TABLE ("tw$who" pg_catalog.int4, "tw$element" pg_catalog.int4, "tw$error" pg_catalog.text\(outputs))
            LANGUAGE plpgsql AS \(quote)\(body)\(quote)
            """
    }

    /// SQL that runs the query for each input element separately after it failed for all elements together. If the
    /// first few elements all fail, the claims themselves are the cause. One row with element 0 then reports the
    /// failure for all elements.
    private var stepsByElement: String {
        guard let rowByElement, inputCount > 0 else { return "" }
        return """
            IF "tw$error" IS NOT NULL AND pg_catalog.cardinality(\(ClaimsScript.variable(0))) > 1 THEN
                "tw$any" := false;
                FOR "tw$index" IN 1 .. pg_catalog.cardinality(\(ClaimsScript.variable(0))) LOOP
                    "tw$element" := "tw$index";
            \(step(after: ClaimsScript.making(rowByElement)))
                    "tw$any" := "tw$any" OR "tw$done";
                    IF NOT "tw$any" AND "tw$index" >= \(ClaimsScript.elementsTried) THEN
                        "tw$element" := 0;
                        RETURN NEXT;
                        EXIT;
                    END IF;
                END LOOP;
                "tw$isHeld" := false;
            END IF;
            """
    }

    private static let elementsTried = 8

    /// SQL that builds the rows in the first step in which that succeeds. It runs as the client's role. The variable
    /// with the rows keeps its value when the subtransaction is rolled back.
    private var making: String {
        guard let rows else { return "" }
        return """
            IF NOT "tw$isHeld" THEN
            \(ClaimsScript.making(rows))
                "tw$isHeld" := true;
            END IF;
            """
    }

    private static func making(_ rows: String) -> String {
        """
        "tw$isMaking" := true;
        SELECT \(rows) AS "tw$made" INTO "tw$held";
        "tw$isMaking" := false;
        """
    }

    /// Returns SQL that runs the query for one set of claims in a subtransaction. The subtransaction always ends with
    /// an exception, also after success, which rolls it back.
    private func step(after first: String) -> String {
        let outputs = (0..<outputCount).map { "\"tw$output\($0)\"" }.joined(separator: ", ")
        let none = (0..<outputCount).map { "\"tw$output\($0)\" := NULL; " }.joined()
        let ask =
            switch shape {
            case .whole: "SELECT * INTO \(outputs) FROM (\(inFunction)\n) AS \"tw$answer\";"
            case .rows: "FOR \(outputs) IN \(inFunction) LOOP RETURN NEXT; END LOOP;"
            }
        return """
            "tw$done" := false;
            "tw$error" := NULL;
            \(none)
            BEGIN
                \(claimsAndRole)
                \(first)
                \(ask)
                "tw$done" := true;
                RAISE EXCEPTION USING ERRCODE = '\(ClaimsScript.undo)';
            EXCEPTION WHEN OTHERS OR assert_failure THEN
                IF NOT "tw$done" THEN
                    "tw$error" := CASE WHEN "tw$isMaking" THEN '\(ClaimsScript.unmade)' ELSE SQLSTATE END;
                    "tw$isMaking" := false;
                    \(none)
                END IF;
            END;
            \(isReturned)
            """
    }

    private var isReturned: String {
        let outputs = (0..<outputCount).map { ", \"tw$output\($0)\"" }.joined()
        return switch shape {
        // A row that has only NULLs is omitted, because callers assume NULL for missing rows.
        case .whole:
            """
            IF pg_catalog.num_nonnulls("tw$error"\(outputs)) > 0 THEN
                RETURN NEXT;
            END IF;
            """
        case .rows:
            """
            IF "tw$error" IS NOT NULL THEN
                RETURN NEXT;
            END IF;
            """
        }
    }

    private var claimsAndRole: String {
        let role = self.role.map { ", pg_catalog.set_config('role', \(Quoted.literal($0)), true)" } ?? ""
        return "PERFORM pg_catalog.set_config('request.jwt.claims', \"tw$one\", true)\(role);"
    }

    /// SQLSTATE of the exception that rolls back the subtransaction of a successful query. PostgreSQL itself uses no
    /// code of this class.
    private static let undo = "TWUND"

    private static func dollarQuote(notIn text: String) -> String {
        var number = 0
        while text.contains("$tidewire\(number)$") { number += 1 }
        return "$tidewire\(number)$"
    }
}
